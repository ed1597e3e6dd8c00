// Package doctor checks servers, reports problems and suggests changes that make locks safer and quicker.
package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Config is what to look at.
type Config struct {
	Servers []string
	TLS     *tls.Config // nil: none
	Connect Connect
	Asked   time.Duration // the session timeout that was asked for
	Prefix  string        // of all paths, "" if there is none
	Chroot  string        // the part of Prefix that has to exist
	Path    string        // on the server: may this user work there? "" skips the check
}

// Connect makes a session on some of the servers, within limit, and asks for a session timeout.
type Connect func(ctx context.Context, servers []string, limit, timeout time.Duration) (*recipes.Client, error)

// Levels of findings, in the order of their weight.
const (
	levelOK     = "ok"
	levelChange = "change"
	levelBad    = "bad"
)

// Finding is one line of a report.
type Finding struct {
	Level string `json:"level"` // ok, change or bad
	What  string `json:"what"`  // a server, or what was looked at
	Text  string `json:"text"`
}

func (f Finding) String() string { return fmt.Sprintf("%-6s %s: %s", f.Level, f.What, f.Text) }

// Report is what was found.
type Report []Finding

// Code is 0 if all is right, 1 if there is something to change, and 2 if something is bad.
func (r Report) Code() int {
	code := 0
	for _, f := range r {
		code = max(code, slices.Index([]string{levelOK, levelChange, levelBad}, f.Level))
	}
	return code
}

// Print prints a line for each finding.
func (r Report) Print(out io.Writer) error {
	for _, f := range r {
		if _, err := fmt.Fprintln(out, f); err != nil {
			return err
		}
	}
	return nil
}

// PrintJSON prints the findings as an array.
func (r Report) PrintJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// Run asks each server, whether or not another one gives a session, and then looks through a session.
func Run(ctx context.Context, cfg Config) Report {
	servers := askAll(ctx, cfg.Servers, cfg.TLS, func(ctx context.Context, s *server) { s.greet(ctx, cfg.Connect) })
	var report Report
	var serving []string
	for _, s := range servers {
		report = append(report, checkServing(s, servers, cfg.Asked))
		if s.isServing() {
			serving = append(serving, s.address)
		}
	}
	if len(serving) == 0 {
		return append(report, Finding{levelBad, "session", "no server grants one"})
	}
	client, err := cfg.Connect(ctx, serving, maxConnect, cfg.Asked)
	if err != nil {
		return append(report, Finding{levelBad, "session", fmt.Sprintf("no server grants one: %v", err)})
	}
	defer closeSoon(ctx, client)
	granted := client.SessionTimeout()
	report = append(report, checkSession(cfg.Asked, granted))
	for _, s := range servers {
		if s.isServing() {
			report = append(report, checkServer(s, granted)...)
		}
	}
	report = append(report, checkEqual(servers)...)
	report = append(report, checkCommits(ctx, client, cfg.Prefix))
	if finding, isMissing := checkChroot(ctx, client, cfg.Chroot); isMissing {
		return append(report, finding)
	}
	report = append(report, checkACL(ctx, client, cfg.Prefix))
	if cfg.Path != "" {
		report = append(report, checkPath(ctx, client, cfg.Path)...)
	}
	return report
}

// Probe asks each server without a session, and returns findings about servers that do not serve.
func Probe(ctx context.Context, addresses []string, settings *tls.Config) (wrong Report) {
	servers := askAll(ctx, addresses, settings, func(context.Context, *server) {})
	for _, s := range servers {
		if f := checkServing(s, servers, 0); f.Level == levelBad {
			wrong = append(wrong, f)
		}
	}
	return wrong
}

// maxConnect bounds the making of the session through which doctor looks. While commits are slow, a client with a short session timeout
// needs several attempts.
const maxConnect = 15 * time.Second

func askAll(ctx context.Context, addresses []string, settings *tls.Config, more func(context.Context, *server)) []server {
	servers := make([]server, len(addresses))
	var asking sync.WaitGroup
	for i, address := range addresses {
		asking.Go(func() { // each question is bounded
			servers[i] = ask(ctx, address, settings)
			more(ctx, &servers[i])
		})
	}
	asking.Wait()
	return servers
}

// checkServing says whether a server serves clients with a session timeout, and if not, at which step it fails.
func checkServing(s server, all []server, timeout time.Duration) Finding {
	up := 0
	for _, other := range all {
		if other.dialErr == nil && !other.isHung() {
			up++
		}
	}
	switch {
	case s.refusal != "":
		return Finding{levelBad, s.address, s.refusal}
	case errors.Is(s.dialErr, syscall.ECONNREFUSED):
		return Finding{levelBad, s.address, fmt.Sprintf("can't be reached: %v: no process listens there; start it, or check its log for why it stopped (a full disk, for example)", s.dialErr)}
	case s.dialErr != nil:
		return Finding{levelBad, s.address, fmt.Sprintf("can't be reached: %v", s.dialErr)}
	case s.isHung():
		return Finding{levelBad, s.address, fmt.Sprintf("accepts connections, but does not answer within %v: hung", AskTime)}
	case s.isWithoutQuorum && up > len(all)/2:
		return Finding{levelBad, s.address, fmt.Sprintf("up, but serves no client although %d of %d servers are up: it is starting, or has no leader; check the disks and the network between the servers", up, len(all))}
	case s.isWithoutQuorum:
		return Finding{levelBad, s.address, fmt.Sprintf("up, but serves no client: no quorum (%d of %d)", up, len(all))}
	case errors.Is(s.greetErr, context.DeadlineExceeded) && s.mode != "":
		return Finding{levelBad, s.address, fmt.Sprintf("up (%s), but did not commit a session within %v: the servers' disks are slow or full", s.mode, AskTime)}
	case s.greetErr != nil:
		return Finding{levelBad, s.address, fmt.Sprintf("up, but grants no session: %v", s.greetErr)}
	case timeout > 0 && s.greetTime > timeout/6:
		return Finding{levelChange, s.address, fmt.Sprintf("serves, but commits are slow: a session took %v, and a client with a session timeout of %v waits for %v: check the servers' disks",
			round(s.greetTime), timeout, timeout/6)}
	case s.greetTime > 0:
		return Finding{levelOK, s.address, fmt.Sprintf("serves: a session took %v", round(s.greetTime))}
	default:
		return Finding{levelOK, s.address, "answers"}
	}
}

func checkSession(asked, granted time.Duration) Finding {
	if granted == asked {
		return Finding{levelOK, "session timeout", fmt.Sprintf("%v, as asked for", granted)}
	}
	return Finding{
		levelChange, "session timeout",
		fmt.Sprintf("%v was granted instead of %v: request that, or change minSessionTimeout or maxSessionTimeout", granted, asked),
	}
}

func checkServer(s server, granted time.Duration) []Finding {
	findings := []Finding{checkVersion(s)}
	if s.isZktest {
		return append(findings, checkTick(s, granted))
	}
	if !s.hasConf() {
		return append(findings, Finding{
			levelChange, s.address,
			"ticks and limits are unknown, because the server does not answer conf: add 4lw.commands.whitelist=srvr,conf,cons to zoo.cfg",
		})
	}
	return append(findings, checkTick(s, granted), checkSyncLimit(s, granted))
}

// badVersions break guarantees that locks rest on.
var badVersions = map[string]string{ //nolint:gochecknoglobals // a constant table
	"3.9.3": "loses committed data (ZOOKEEPER-4925): install 3.9.4 or later",
	"3.9.2": "leaves ephemeral znodes of closed sessions behind (ZOOKEEPER-4785): install 3.9.4 or later",
}

func checkVersion(s server) Finding {
	what := s.address
	if s.version == "" {
		return Finding{levelChange, what, "its version is unknown, because it does not answer srvr: add that to 4lw.commands.whitelist"}
	}
	if fault, isBad := badVersions[s.version]; isBad {
		return Finding{levelBad, what, "version " + s.version + " " + fault}
	}
	if s.isZktest {
		return Finding{levelChange, what, "zkr dev, or a server of package zktest: it keeps everything in memory; use it for development and tests only"}
	}
	if isOlder(s.version, 3, 5) {
		return Finding{levelChange, what, "version " + s.version + " is no longer maintained and has no container znodes, so empty lock paths stay"}
	}
	return Finding{levelOK, what, "version " + s.version + ", " + s.mode}
}

func checkTick(s server, granted time.Duration) Finding {
	least := 2 * s.tick
	switch {
	case s.minTimeout < least:
		return Finding{levelChange, s.address, fmt.Sprintf(
			"minSessionTimeout %v is below two ticks of %v: with a session timeout below that, two clients may hold a lock; raise it to %v", s.minTimeout, s.tick, least)}
	case granted < least:
		return Finding{levelBad, s.address, fmt.Sprintf("the session timeout %v is below two ticks of %v: two clients may hold a lock; request %v", granted, s.tick, least)}
	default:
		return Finding{levelOK, s.address, fmt.Sprintf("tick %v, session timeouts from %v to %v", s.tick, s.minTimeout, s.maxTimeout)}
	}
}

// checkSyncLimit compares the time in which the servers notice a hung leader with the time for which a lease survives
// a hung leader.
func checkSyncLimit(s server, granted time.Duration) Finding {
	if s.mode == "standalone" || s.syncLimit == 0 {
		return Finding{levelChange, s.address, "standalone server: no lock outlives it for longer than a session; use three servers or more"}
	}
	late := time.Duration(s.syncLimit) * s.tick
	if late >= granted/2 {
		return Finding{levelChange, s.address, fmt.Sprintf(
			"a leader that hangs is noticed after syncLimit × tickTime = %v, and a lease outlives %v: all locks are lost then; request a session timeout above %v, or lower syncLimit",
			late, granted/2, 2*late)}
	}
	return Finding{levelOK, s.address, fmt.Sprintf("a leader that hangs is noticed after %v, and a lease outlives %v", late, granted/2)}
}

// checkEqual compares the bounds of session timeouts, which have to be the same on all servers.
func checkEqual(servers []server) (findings []Finding) {
	var first *server
	for i, s := range servers {
		switch {
		case !s.hasConf():
		case first == nil:
			first = &servers[i]
		case s.tick != first.tick || s.minTimeout != first.minTimeout || s.maxTimeout != first.maxTimeout:
			findings = append(findings, Finding{levelChange, s.address, fmt.Sprintf(
				"ticks and bounds of session timeouts differ from those of %s: a session that changes servers may end earlier than its client knows", first.address)})
		}
	}
	return findings
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
