package elections

import (
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// RemainTimeToLive returns how long this process certainly leads without a renewal. It returns 0 if the process does
// not lead.
func RemainTimeToLive(election *latch.LeaderLatch) time.Duration {
	term, leads := election.Leadership()
	if !leads {
		return 0
	}
	return max(0, time.Until(term.TrustedUntil()))
}
