package wire

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Gap is a time in which the server may have received nothing from us, because the process was
// stopped or the connection stood still.
type Gap struct {
	StartAt time.Time // when the last request before the gap was sent
	EndAt   time.Time
	// isLateWrite means that the gap shows in the late answer to a write alone. A slow quorum
	// would look the same.
	isLateWrite bool
}

// Gaps are the gaps of one connection, the oldest first.
type Gaps []Gap

// Add appends a gap, or prolongs the last one. It forgets the gaps that limit no proof any more.
func (g *Gaps) Add(added Gap, timeout time.Duration) {
	if n := len(*g); n > 0 && (*g)[n-1].StartAt.Equal(added.StartAt) && (*g)[n-1].isLateWrite == added.isLateWrite {
		(*g)[n-1].EndAt = added.EndAt
		return
	}
	*g = append(slices.DeleteFunc(*g, func(old Gap) bool { return added.EndAt.Sub(old.EndAt) > timeout }), added)
}

// hasStopSince reports whether a gap ended after t that no slow quorum can have caused.
func (g Gaps) hasStopSince(t time.Time) bool {
	return slices.ContainsFunc(g, func(gap Gap) bool { return !gap.isLateWrite && gap.EndAt.After(t) })
}

// dropLateWrites forgets the gaps that late writes had suggested: the quorum is slow.
func (g *Gaps) dropLateWrites() {
	*g = slices.DeleteFunc(*g, func(gap Gap) bool { return gap.isLateWrite })
}

// Limit returns until when a committed write proves the session, if it was sent at sentAt. That is
// the horizon after sentAt, or less because of a gap before the write.
//
// The servers report to their leader every half tick, T/4 at most, from which sessions they have
// received something. The last report before the write may therefore be T/4 old, and cover the gap
// alone. Then the leader lets the session live until T after the last request before the gap. T/12
// of that is our margin.
func (g Gaps) Limit(sentAt time.Time, horizon, timeout time.Duration) time.Time {
	limit := sentAt.Add(horizon)
	for _, gap := range g {
		if sentAt.Before(gap.EndAt.Add(timeout / zkutil.ReportsPerTimeout)) {
			limit = zkutil.Earliest(limit, gap.StartAt.Add(timeout-timeout/zkutil.MarginsPerTimeout))
		}
	}
	return limit
}
