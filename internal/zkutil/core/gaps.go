package core

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Gap is a period in which the server may have received nothing from this client, because the process was
// stopped or the connection was stuck.
type Gap struct {
	StartAt time.Time // when the last request before the gap was sent
	EndAt   time.Time
	// IsLateWrite means that only the late answer to a write indicates the gap. A slow quorum would look the
	// same.
	IsLateWrite bool
	IsHandshake bool // the gap began with a handshake
}

// Gaps are the gaps of one connection, the oldest first.
type Gaps []Gap

// Add appends a gap, or prolongs the last gap, and forgets the gaps that limit no proof any more.
func (g *Gaps) Add(added Gap, timeout time.Duration) {
	if n := len(*g); n > 0 && (*g)[n-1].StartAt.Equal(added.StartAt) && (*g)[n-1].IsLateWrite == added.IsLateWrite {
		(*g)[n-1].EndAt = added.EndAt
		return
	}
	*g = append(slices.DeleteFunc(*g, func(old Gap) bool { return added.EndAt.Sub(old.EndAt) > timeout }), added)
}

// HasStopSince reports whether a gap ended after t for which a slow quorum can't be the reason.
func (g Gaps) HasStopSince(t time.Time) bool {
	return slices.ContainsFunc(g, func(gap Gap) bool { return !gap.IsLateWrite && !gap.IsHandshake && gap.EndAt.After(t) })
}

// DropLateWrites forgets the gaps inferred from late writes, because the quorum is slow.
func (g *Gaps) DropLateWrites() {
	*g = slices.DeleteFunc(*g, func(gap Gap) bool { return gap.IsLateWrite })
}

// Limit returns until when a committed write sent at sentAt proves the session. That is the horizon after sentAt, or
// less because of a gap before the write.
//
// Every half tick, T/4 at most, the servers report the sessions with recent requests to their leader. The last
// report before the write may therefore be T/4 old, 5T/18 by a fast clock, and cover the gap alone. Then the leader lets the session
// live until T after the last request before the gap. Limit keeps T/9 as a margin, because clocks may run at rates that
// differ by a ninth.
func (g Gaps) Limit(sentAt time.Time, horizon, timeout time.Duration) time.Time {
	limit := sentAt.Add(horizon)
	for _, gap := range g {
		if sentAt.Before(gap.EndAt.Add(longestBetweenReports(timeout))) {
			limit = zkutil.Earliest(limit, gap.StartAt.Add(timeout-timeout/MarginsPerTimeout))
		}
	}
	return limit
}
