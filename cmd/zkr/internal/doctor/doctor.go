// Package doctor looks at servers and says what is wrong and what to change, so that locks are as safe and as quick
// as they can be.
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
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Config is what to look at.
type Config struct {
	Servers []string
	TLS     *tls.Config // nil: none
	// Connect makes a session on some of the servers.
	Connect func(ctx context.Context, servers []string, limit time.Duration) (*recipes.Client, error)
	Asked   time.Duration // the session timeout that was asked for
	Prefix  string        // of all paths, "" if there is none
	Path    string        // on the server: may this user work there? "" asks nothing
}

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
		report = append(report, checkServing(s, servers))
		if s.isServing() {
			serving = append(serving, s.address)
		}
	}
	if len(serving) == 0 {
		return append(report, Finding{levelBad, "session", "no server gives one"})
	}
	client, err := cfg.Connect(ctx, serving, maxConnect)
	if err != nil {
		return append(report, Finding{levelBad, "session", fmt.Sprintf("no server gives one: %v", err)})
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
	report = append(report, checkCommits(ctx, client, cfg.Prefix), checkACL(ctx, client, cfg.Prefix))
	if cfg.Path != "" {
		report = append(report, checkPath(ctx, client, cfg.Path)...)
	}
	return report
}

// Probe asks each server without a session, and returns what is wrong with those that do not serve.
func Probe(ctx context.Context, addresses []string, settings *tls.Config) (wrong Report) {
	servers := askAll(ctx, addresses, settings, func(context.Context, *server) {})
	for _, s := range servers {
		if f := checkServing(s, servers); f.Level == levelBad {
			wrong = append(wrong, f)
		}
	}
	return wrong
}

// maxConnect bounds the making of the session through which doctor looks.
const maxConnect = 5 * time.Second

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

// checkServing says whether a server serves clients, and if not, at which step it fails.
func checkServing(s server, all []server) Finding {
	up := 0
	for _, other := range all {
		if other.dialErr == nil && !other.isHung() {
			up++
		}
	}
	switch {
	case s.dialErr != nil:
		return Finding{levelBad, s.address, fmt.Sprintf("can't be reached: %v", s.dialErr)}
	case s.isHung():
		return Finding{levelBad, s.address, fmt.Sprintf("accepts, but does not answer for %v: hung", AskTime)}
	case s.isWithoutQuorum && up > len(all)/2:
		return Finding{levelBad, s.address, fmt.Sprintf("up, serves nobody, although %d of %d are up: it has no leader; look at the disks, and at the network between the servers", up, len(all))}
	case s.isWithoutQuorum:
		return Finding{levelBad, s.address, fmt.Sprintf("up, serves nobody: no quorum (%d of %d)", up, len(all))}
	case errors.Is(s.greetErr, context.DeadlineExceeded) && s.mode != "":
		return Finding{levelBad, s.address, fmt.Sprintf("up (%s), but a session was not committed within %v: look at the disks of the servers", s.mode, AskTime)}
	case s.greetErr != nil:
		return Finding{levelBad, s.address, fmt.Sprintf("up, but gives no session: %v", s.greetErr)}
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
		fmt.Sprintf("%v was granted in place of %v: ask for that, or change minSessionTimeout or maxSessionTimeout", granted, asked),
	}
}

func checkServer(s server, granted time.Duration) []Finding {
	findings := []Finding{checkVersion(s)}
	if !s.hasConf() {
		return append(findings, Finding{
			levelChange, s.address,
			"ticks and limits are not known, because the server does not answer conf: add 4lw.commands.whitelist=srvr,conf,cons to zoo.cfg",
		})
	}
	return append(findings, checkTick(s, granted), checkSyncLimit(s, granted))
}

// badVersions are those that lose what locks rest on.
var badVersions = map[string]string{ //nolint:gochecknoglobals // a constant table
	"3.9.3": "loses committed data (ZOOKEEPER-4925): install 3.9.4 or later",
	"3.9.2": "leaves ephemeral znodes of closed sessions behind (ZOOKEEPER-4785): install 3.9.4 or later",
}

func checkVersion(s server) Finding {
	what := s.address
	if s.version == "" {
		return Finding{levelChange, what, "its version is not known, because it does not answer srvr: add that to 4lw.commands.whitelist"}
	}
	if fault, isBad := badVersions[s.version]; isBad {
		return Finding{levelBad, what, "version " + s.version + " " + fault}
	}
	if isOlder(s.version, 3, 5) {
		return Finding{levelChange, what, "version " + s.version + " gets no corrections any more, and has no containers: empty lock paths stay"}
	}
	return Finding{levelOK, what, "version " + s.version + ", " + s.mode}
}

func checkTick(s server, granted time.Duration) Finding {
	least := 2 * s.tick
	switch {
	case s.minTimeout < least:
		return Finding{levelChange, s.address, fmt.Sprintf(
			"minSessionTimeout %v is below two ticks of %v: with a session timeout below that, two may hold a lock; raise it to %v", s.minTimeout, s.tick, least)}
	case granted < least:
		return Finding{levelBad, s.address, fmt.Sprintf("the session timeout %v is below two ticks of %v: two may hold a lock; ask for %v", granted, s.tick, least)}
	default:
		return Finding{levelOK, s.address, fmt.Sprintf("tick %v, session timeouts from %v to %v", s.tick, s.minTimeout, s.maxTimeout)}
	}
}

// checkSyncLimit compares how late a leader that hangs is noticed with how long a lease outlives that.
func checkSyncLimit(s server, granted time.Duration) Finding {
	if s.mode == "standalone" || s.syncLimit == 0 {
		return Finding{levelChange, s.address, "it stands alone: no lock outlives it for longer than a session; use three servers or more"}
	}
	late := time.Duration(s.syncLimit) * s.tick
	if late >= granted/2 {
		return Finding{levelChange, s.address, fmt.Sprintf(
			"a leader that hangs is noticed after syncLimit × tickTime = %v, and a lease outlives %v: all locks are lost then; ask for a session timeout above %v, or lower syncLimit",
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
