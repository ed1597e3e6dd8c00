package chaos

import (
	"cmp"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/judge"
)

// starved is the kind of a lack of processor time for a process.
const starved = string(judge.Starved)

// aTurn is for how long a process may run between two times in which it does not, without time for anything: one turn
// of watchClock.
const aTurn = int64(20 * time.Millisecond)

// collectStarved finds the times in which processes did not run, pauses included. It joins adjacent times.
func (h *History) collectStarved() {
	for _, e := range h.Events {
		if e.What == Starved {
			h.Starved = append(h.Starved, Fault{Kind: starved, Proc: e.Proc, From: e.Value, To: e.At})
		}
	}
	slices.SortFunc(h.Starved, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.Proc, b.Proc), cmp.Compare(a.From, b.From)) })
	joined := h.Starved[:0]
	for _, f := range h.Starved {
		if n := len(joined); n > 0 && f.follows(joined[n-1]) {
			joined[n-1].To = max(joined[n-1].To, f.To)
		} else {
			joined = append(joined, f)
		}
	}
	h.Starved = joined
}

// follows reports whether a time in which a process did not run follows another one at once.
func (f Fault) follows(before Fault) bool {
	return f.Kind == starved && before.Kind == starved && f.Proc == before.Proc && f.From-before.To <= aTurn
}

// StarvedWithin returns for how long, within a time, any process or the quorum did not run.
func (h *History) StarvedWithin(from, to int64) (sum time.Duration) {
	all := slices.SortedFunc(slices.Values(h.Starved), func(a, b Fault) int { return cmp.Compare(a.From, b.From) })
	for _, f := range all {
		if from = max(from, f.From); min(f.To, to) > from {
			sum += time.Duration(min(f.To, to) - from)
			from = f.To
		}
	}
	return sum
}
