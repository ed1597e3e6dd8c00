package trust

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// suspendedTime returns for how long the machine has been suspended since boot: CLOCK_BOOTTIME goes on during a
// suspension, CLOCK_MONOTONIC does not.
func suspendedTime() (suspended time.Duration) {
	const attempts, quick = 20, 50 * time.Microsecond
	var boot, before, after unix.Timespec
	least := time.Duration(math.MaxInt64)
	for range attempts {
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) != nil ||
			unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after) != nil {
			return 0
		}
		if took := time.Duration(after.Nano() - before.Nano()); took < least {
			suspended, least = time.Duration(boot.Nano()-after.Nano()), took
		}
		if least < quick {
			break // otherwise the thread was interrupted between the readings
		}
	}
	return suspended
}
