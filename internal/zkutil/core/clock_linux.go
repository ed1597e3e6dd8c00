package core

import "golang.org/x/sys/unix"

// Two clocks of clock_gettime(2). The first continues during a suspension, and the second, which is Go's, stops.
const continuousClock, stoppingClock = unix.CLOCK_BOOTTIME, unix.CLOCK_MONOTONIC
