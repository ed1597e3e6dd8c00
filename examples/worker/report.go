package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"
)

// report is what a tour has shown.
type report struct {
	sessionTimeout time.Duration
	every          time.Duration
	handovers      []handover
	terms          []term
	runs           []runRecord // the latest first
	stale          int         // writes refused by the database
}

// term is one term of leadership.
type term struct {
	token      int64
	leader     string
	began, end time.Time // end: the end of validity; zero: current
}

// terms collects the terms from the workers' events. A killed worker could not report the end of its term, which is
// the kill.
func terms(events []event, handovers []handover) []term {
	byToken := map[int64]*term{}
	var all []*term
	for _, e := range events {
		switch e.Msg {
		case saysLeads:
			t := &term{token: e.Token, leader: e.Worker, began: e.Time}
			byToken[e.Token] = t
			all = append(all, t)
		case saysEnds:
			if t := byToken[e.Token]; t != nil {
				t.end = e.Valid
			}
		}
	}
	for _, h := range handovers {
		if t := byToken[h.token]; t != nil && h.signal == crash {
			t.end = h.at
		}
	}
	sorted := make([]term, len(all))
	for i, t := range all {
		sorted[i] = *t
	}
	slices.SortFunc(sorted, func(a, b term) int { return cmp.Compare(a.token, b.token) })
	return sorted
}

func staleWrites(events []event) (n int) {
	for _, e := range events {
		if e.Stale {
			n++
		}
	}
	return n
}

// overlaps counts the terms that began while the previous one was valid.
func (r report) overlaps() (n int) {
	for i := 1; i < len(r.terms); i++ {
		if before := r.terms[i-1]; before.end.IsZero() || r.terms[i].began.Before(before.end) {
			n++
		}
	}
	return n
}

// orderlyHandover bounds a handover by step-down. On an idle machine it takes some milliseconds.
const orderlyHandover = time.Second

// expirySlack is added to the session timeout, for a tick of the server and the notification of the next leader.
const expirySlack = 1500 * time.Millisecond

// fault returns the first error, or nil.
func (r report) fault() error {
	for _, h := range r.handovers {
		limit := r.sessionTimeout + expirySlack
		if h.signal == stopNicely {
			limit = orderlyHandover
		}
		if took := h.led.Sub(h.at); took > limit {
			return fmt.Errorf("%s: the next leader came after %v, the limit is %v", signalName(h.signal), took, limit)
		}
		// It waits until the run is due, an interval at most.
		if took := h.firstRun.Sub(h.at); took > limit+r.every {
			return fmt.Errorf("%s: the next leader's first run came after %v, the limit is %v", signalName(h.signal), took, limit+r.every)
		}
	}
	if err := r.faultOfRuns(); err != nil {
		return err
	}
	switch {
	case r.overlaps() > 0:
		return errors.New("terms overlap")
	case r.stale != 1:
		return fmt.Errorf("%d stale writes refused instead of 1", r.stale)
	}
	return nil
}

// faultOfRuns returns what is wrong with the runs: their numbers, the order of their tokens,
// or their times.
func (r report) faultOfRuns() error {
	done := map[time.Time]int64{} // finished runs, by due time
	for i, n := 0, len(r.runs); i < n; i++ {
		run := r.runs[i]
		if run.Number != int64(n-i) {
			return fmt.Errorf("%d runs, and number %d among them", n, run.Number)
		}
		if i > 0 && run.Token > r.runs[i-1].Token {
			return fmt.Errorf("run %d has a higher token than the one after it", run.Number)
		}
		if run.Began.Before(run.Due) {
			return fmt.Errorf("run %d began %v before it was due", run.Number, run.Due.Sub(run.Began))
		}
		if run.Outcome != outcomeDone {
			continue
		}
		if again := done[run.Due]; again != 0 {
			return fmt.Errorf("run %d was done again as run %d", run.Number, again)
		}
		done[run.Due] = run.Number
	}
	return nil
}

// write prints the report. Its last line is for programs, and does not change.
func (r report) write(w io.Writer) error {
	out := bufio.NewWriter(w) // keeps the first error for Flush
	_, _ = fmt.Fprintf(out, "\n  %-10s %-10s %-10s %14s %18s\n", "leader", "goes by", "next", "leads after", "first run after")
	for _, h := range r.handovers {
		_, _ = fmt.Fprintf(out, "  %-10s %-10s %-10s %14v %18v\n", h.from, signalName(h.signal), h.to,
			h.led.Sub(h.at).Round(100*time.Microsecond), h.firstRun.Sub(h.at).Round(100*time.Microsecond))
	}
	plural := "s"
	if r.stale == 1 {
		plural = ""
	}
	_, _ = fmt.Fprintf(out, "\nworker: %d leaders, %d runs, %d stale write%s refused, %d overlapping terms\n",
		len(r.terms), len(r.runs), r.stale, plural, r.overlaps())
	return out.Flush()
}

func signalName(s syscall.Signal) string {
	switch s {
	case stopNicely:
		return "SIGTERM"
	case crash:
		return "SIGKILL"
	case pause:
		return "SIGSTOP"
	default:
		return s.String()
	}
}
