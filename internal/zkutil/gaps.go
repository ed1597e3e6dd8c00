package zkutil

import (
	"slices"
	"time"
)

// gap is a time in which the server may have received nothing from us: the process was
// stopped, or the line to the server stood still.
type gap struct {
	from   time.Time // when the last request before it was sent
	until  time.Time
	isLate bool // known by the late answer to a write alone, which a slow quorum would give as well
}

// gaps are those of one connection, the oldest first.
type gaps []gap

// add appends a gap, or prolongs the last one, and forgets those that limit no proof any more.
func (g *gaps) add(one gap, timeout time.Duration) {
	if n := len(*g); n > 0 && (*g)[n-1].from.Equal(one.from) && (*g)[n-1].isLate == one.isLate {
		(*g)[n-1].until = one.until
		return
	}
	*g = append(slices.DeleteFunc(*g, func(old gap) bool { return one.until.Sub(old.until) > timeout }), one)
}

// isStoppedSince reports whether a gap ended after t that no slow quorum can have made.
func (g gaps) isStoppedSince(t time.Time) bool {
	return slices.ContainsFunc(g, func(one gap) bool { return !one.isLate && one.until.After(t) })
}

// dropLate forgets the gaps that were none: the quorum is slow.
func (g *gaps) dropLate() {
	*g = slices.DeleteFunc(*g, func(one gap) bool { return one.isLate })
}

// limit returns until when a write proves the session that was sent at sent: the horizon
// after it, or less because of a gap before it.
//
// The servers report to their leader every half tick, T/4 at most, which sessions they have
// received something from. The last report before the write may be T/4 old, and from within the
// gap. Then the leader lets the session live until T after the last request before the gap,
// and T/12 of that is our margin.
func (g gaps) limit(sent time.Time, horizon, timeout time.Duration) time.Time {
	until := sent.Add(horizon)
	for _, one := range g {
		if sent.Before(one.until.Add(timeout / reportsPerTimeout)) {
			until = earliest(until, one.from.Add(timeout-timeout/marginsPerTimeout))
		}
	}
	return until
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
