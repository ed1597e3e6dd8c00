// Package doctor looks at servers and says what to change, so that locks are as safe and as quick as they
// can be.
package doctor

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Config is what to look at.
type Config struct {
	Client  *recipes.Client
	Servers []string
	TLS     *tls.Config   // nil: none
	Asked   time.Duration // the session timeout that was asked for
	Prefix  string        // of all paths, "" if there is none
}

// Levels of findings.
const (
	levelOK      = "ok"
	levelChange  = "change"
	levelUnknown = "unknown"
)

// finding is one line of the report.
type finding struct {
	level string
	what  string
	text  string
}

// Run prints a line for each finding: whether all is right, what to change, or what can't be told.
func Run(ctx context.Context, out io.Writer, cfg Config) error {
	var servers []server
	for _, address := range cfg.Servers {
		servers = append(servers, ask(ctx, address, cfg.TLS))
	}
	granted := cfg.Client.SessionTimeout()
	findings := checkSession(cfg.Asked, granted)
	for _, s := range servers {
		findings = append(findings, checkServer(s, granted)...)
	}
	findings = append(findings, checkEqual(servers)...)
	findings = append(findings, checkACL(cfg.Client, cfg.Prefix), checkClock(cfg.Client, cfg.Prefix))
	for _, f := range findings {
		if _, err := fmt.Fprintf(out, "%-8s %s: %s\n", f.level, f.what, f.text); err != nil {
			return err
		}
	}
	return nil
}

func checkSession(asked, granted time.Duration) []finding {
	if granted == asked {
		return []finding{{levelOK, "session timeout", fmt.Sprintf("%v, as asked for", granted)}}
	}
	return []finding{{
		levelChange, "session timeout",
		fmt.Sprintf("%v was granted in place of %v: ask for that, or change minSessionTimeout or maxSessionTimeout", granted, asked),
	}}
}

func checkServer(s server, granted time.Duration) []finding {
	if s.err != nil {
		return []finding{{levelChange, s.address, fmt.Sprintf("can't be reached: %v", s.err)}}
	}
	findings := []finding{checkVersion(s)}
	if !s.hasConf() {
		return append(findings, finding{
			levelUnknown, s.address,
			"ticks and limits: the server does not answer conf; add 4lw.commands.whitelist=srvr,conf to zoo.cfg",
		})
	}
	return append(findings, checkTick(s, granted), checkSyncLimit(s, granted))
}

// badVersions are those that lose what locks rest on.
var badVersions = map[string]string{ //nolint:gochecknoglobals // a constant table
	"3.9.3": "loses committed data (ZOOKEEPER-4925): install 3.9.4 or later",
	"3.9.2": "leaves ephemeral znodes of closed sessions behind (ZOOKEEPER-4785): install 3.9.4 or later",
}

func checkVersion(s server) finding {
	what := s.address
	if s.version == "" {
		return finding{levelUnknown, what, "version: the server does not answer srvr; add it to 4lw.commands.whitelist"}
	}
	if fault, isBad := badVersions[s.version]; isBad {
		return finding{levelChange, what, "version " + s.version + " " + fault}
	}
	if isOlder(s.version, 3, 5) {
		return finding{levelChange, what, "version " + s.version + " gets no corrections any more, and has no containers: empty lock paths stay"}
	}
	return finding{levelOK, what, "version " + s.version + ", " + s.mode}
}

func checkTick(s server, granted time.Duration) finding {
	least := 2 * s.tick
	switch {
	case s.minTimeout < least:
		return finding{levelChange, s.address, fmt.Sprintf(
			"minSessionTimeout %v is below two ticks of %v: with a session timeout below that, two may hold a lock; raise it to %v", s.minTimeout, s.tick, least)}
	case granted < least:
		return finding{levelChange, s.address, fmt.Sprintf("the session timeout %v is below two ticks of %v: ask for %v", granted, s.tick, least)}
	default:
		return finding{levelOK, s.address, fmt.Sprintf("tick %v, session timeouts from %v to %v", s.tick, s.minTimeout, s.maxTimeout)}
	}
}

// checkSyncLimit compares how late a leader that hangs is noticed with how long a lease outlives that.
func checkSyncLimit(s server, granted time.Duration) finding {
	if s.mode == "standalone" || s.syncLimit == 0 {
		return finding{levelChange, s.address, "it stands alone: no lock outlives it for longer than a session; use three servers or more"}
	}
	late := time.Duration(s.syncLimit) * s.tick
	if late >= granted/2 {
		return finding{levelChange, s.address, fmt.Sprintf(
			"a leader that hangs is noticed after syncLimit × tickTime = %v, and a lease outlives %v: all locks are lost then; ask for a session timeout above %v, or lower syncLimit",
			late, granted/2, 2*late)}
	}
	return finding{levelOK, s.address, fmt.Sprintf("a leader that hangs is noticed after %v, and a lease outlives %v", late, granted/2)}
}

// checkEqual compares the bounds of session timeouts, which have to be the same on all servers.
func checkEqual(servers []server) (findings []finding) {
	var first *server
	for i, s := range servers {
		switch {
		case !s.hasConf():
		case first == nil:
			first = &servers[i]
		case s.tick != first.tick || s.minTimeout != first.minTimeout || s.maxTimeout != first.maxTimeout:
			findings = append(findings, finding{levelChange, s.address, fmt.Sprintf(
				"ticks and bounds of session timeouts differ from those of %s: a session that changes servers may end earlier than its client knows", first.address)})
		}
	}
	return findings
}
