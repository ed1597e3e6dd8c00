package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// On an adopted connection a pause shows in the keeper alone, which looks every T/6. The last ping may have been sent T/3
// before the pause began. No write after the pause proves the session beyond T after that ping, less the margin.
func TestPauseOfAWaiterOnAnAdoptedConnection(t *testing.T) {
	const timeout = 24 * time.Second
	for name, users := range map[string]int{"idle": 0, "waits": 1} {
		t.Run(name, func(t *testing.T) {
			for pause := timeout / 3; pause < timeout; pause += timeout / 24 {
				s := &Session{clock: &clock{suspended: func() time.Duration { return 0 }}, live: newLiveness(timeout)}
				s.live.hasConnected, s.live.users, s.link.isConnected, s.state = true, users, true, Connected
				lookedAt := time.Unix(1_000_000, 0)
				s.live.inUseSince, s.live.trust.lastReadAt, s.live.trust.lastAuditAt = lookedAt, lookedAt, lookedAt
				s.tick(lookedAt)
				lastPing, resumed := lookedAt.Add(-timeout/3), lookedAt.Add(pause)
				s.live.users = 1 // for the write
				s.tick(resumed)
				limit := s.live.trust.gaps.Limit(resumed, zkutil.AdoptedHorizon(timeout), timeout)
				require.LessOrEqual(t, limit.Sub(lastPing), timeout-timeout/zkutil.MarginsPerTimeout, "a pause of %v", pause)
			}
		})
	}
}
