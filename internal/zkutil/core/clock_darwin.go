package core

import "golang.org/x/sys/unix"

// Two clocks of clock_gettime(3). The first continues while the machine sleeps. The second stops, and is the clock of
// mach_absolute_time, which is Go's.
const continuousClock, stoppingClock = unix.CLOCK_MONOTONIC_RAW, unix.CLOCK_UPTIME_RAW
