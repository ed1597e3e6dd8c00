package chaos

import (
	"cmp"
	"slices"
	"time"
)

// starved is the kind of what happens to a process when the machine has no time for it.
const starved = "process starved"

// aTurn is for how long a process may run between two times in which it does not, without time for anything: one turn
// of watchClock.
const aTurn = int64(20 * time.Millisecond)

// collectStarved finds the times in which processes did not run, be it that they were paused. Those that follow each other
// at once are one.
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
