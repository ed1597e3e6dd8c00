package elections

import (
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// RemainTimeToLive is for how long this process leads for certain, if nothing renews its
// term. Nobody else leads before that has passed. 0: it does not lead.
func RemainTimeToLive(election *latch.LeaderLatch) time.Duration {
	term, leads := election.Leadership()
	if !leads {
		return 0
	}
	return max(0, time.Until(term.TrustedUntil()))
}
