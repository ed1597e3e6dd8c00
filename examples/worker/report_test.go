//go:build unix

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func at(ms int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(ms)) }

// theEvents is a tour as it should be: ann stops, bob is killed, cid hangs, ann again.
func theEvents() []event {
	return []event{
		{Time: at(0), Msg: saysLeads, Worker: "ann", Token: 10},
		{Time: at(1000), Msg: saysEnds, Worker: "ann", Token: 10, Valid: at(1000)},
		{Time: at(1005), Msg: saysLeads, Worker: "bob", Token: 20},
		{Time: at(5000), Msg: saysLeads, Worker: "cid", Token: 30},
		{Time: at(9500), Msg: saysLeads, Worker: "ann", Token: 40},
		{Time: at(9900), Msg: saysFails, Worker: "cid", Token: 30, Stale: true},
		{Time: at(9901), Msg: saysEnds, Worker: "cid", Token: 30, Valid: at(8000)},
	}
}

func theHandovers() []handover {
	return []handover{
		{signal: stopNicely, from: "ann", token: 10, at: at(998), to: "bob", led: at(1005), firstRun: at(1006)},
		{signal: crash, from: "bob", token: 20, at: at(2000), to: "cid", led: at(5000), firstRun: at(5001)},
		{signal: pause, from: "cid", token: 30, at: at(6500), to: "ann", led: at(9500), firstRun: at(9502)},
	}
}

func theReport() report {
	r := report{
		sessionTimeout: 3 * time.Second, every: time.Second, handovers: theHandovers(),
		terms: terms(theEvents(), theHandovers()), stale: staleWrites(theEvents()),
	}
	for n := int64(4); n > 0; n-- {
		run := aRun(n, 10*n)
		run.Due, run.Began = run.Due.Add(time.Duration(n)*time.Second), run.Began.Add(time.Duration(n)*time.Second)
		r.runs = append(r.runs, run)
	}
	return r
}

func TestTerms(t *testing.T) {
	require.Equal(t, []term{
		{token: 10, leader: "ann", began: at(0), end: at(1000)},
		{token: 20, leader: "bob", began: at(1005), end: at(2000)}, // by the kill
		{token: 30, leader: "cid", began: at(5000), end: at(8000)}, // by its own clock, regardless of when it resumed
		{token: 40, leader: "ann", began: at(9500)},
	}, theReport().terms)
}

func TestReport(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*report)
		fault  string
		line   string
	}{
		{"as it should be", func(*report) {}, "", "4 leaders, 4 runs, 1 stale write refused, 0 overlapping terms"},
		{
			"a term that went on", func(r *report) { r.terms[1].end = at(5001) },
			"terms overlap", "4 leaders, 4 runs, 1 stale write refused, 1 overlapping terms",
		},
		{
			"a term without end", func(r *report) { r.terms[0].end = time.Time{} },
			"terms overlap", "4 leaders, 4 runs, 1 stale write refused, 1 overlapping terms",
		},
		{
			"nothing refused", func(r *report) { r.stale = 0 },
			"0 stale writes refused instead of 1", "4 leaders, 4 runs, 0 stale writes refused, 0 overlapping terms",
		},
		{
			"a run twice", func(r *report) { r.runs[1].Number = 4 },
			"number 4 among them", "4 leaders, 4 runs, 1 stale write refused, 0 overlapping terms",
		},
		{
			"an old token after a new one", func(r *report) { r.runs[0].Token = 9 },
			"higher token", "4 leaders, 4 runs, 1 stale write refused, 0 overlapping terms",
		},
		{
			"a run before its time", func(r *report) { r.runs[0].Began = r.runs[0].Due.Add(-time.Second) },
			"run 4 began 1s before it was due", "4 leaders, 4 runs, 1 stale write refused, 0 overlapping terms",
		},
		{
			"a run done again after a takeover", func(r *report) { r.runs[0].Due = r.runs[1].Due },
			"run 3 was done again as run 4", "4 leaders, 4 runs, 1 stale write refused, 0 overlapping terms",
		},
		{
			"a stop as slow as a crash", func(r *report) { r.handovers[0].led = at(4000) },
			"SIGTERM: the next leader came after 3.002s, the limit is 1s", "4 leaders, 4 runs, 1 stale write refused, 0 overlapping terms",
		},
		{
			"a first run that came late", func(r *report) { r.handovers[0].firstRun = at(4000) },
			"SIGTERM: the next leader's first run came after 3.002s, the limit is 2s", "4 leaders, 4 runs, 1 stale write refused, 0 overlapping terms",
		},
		{
			"a session that did not expire", func(r *report) { r.handovers[1].led = at(8000) },
			"SIGKILL: the next leader came after 6s, the limit is 4.5s", "4 leaders, 4 runs, 1 stale write refused, 0 overlapping terms",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := theReport()
			tt.change(&r)
			if tt.fault == "" {
				require.NoError(t, r.fault())
			} else {
				require.ErrorContains(t, r.fault(), tt.fault)
			}
			var out strings.Builder
			require.NoError(t, r.write(&out))
			require.True(t, strings.HasSuffix(out.String(), "\nworker: "+tt.line+"\n"), out.String())
		})
	}
}

func TestReportInFull(t *testing.T) {
	var out strings.Builder
	require.NoError(t, theReport().write(&out))
	require.Equal(t, `
  leader     goes by    next          leads after    first run after
  ann        SIGTERM    bob                   7ms                8ms
  bob        SIGKILL    cid                    3s             3.001s
  cid        SIGSTOP    ann                    3s             3.002s

worker: 4 leaders, 4 runs, 1 stale write refused, 0 overlapping terms
`, out.String())
}

type fullDisk struct{}

var errFull = errors.New("disk full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestReportShowsAFailedWrite(t *testing.T) {
	require.ErrorIs(t, theReport().write(fullDisk{}), errFull)
}
