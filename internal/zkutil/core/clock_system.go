//go:build linux || darwin

package core

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspendedTime returns for how long the machine was suspended since boot.
func suspendedTime() time.Duration {
	return leadOf(systemClock(continuousClock), systemClock(stoppingClock))
}

func systemClock(id int32) func() time.Duration {
	return func() time.Duration {
		var t unix.Timespec
		_ = unix.ClockGettime(id, &t) // does not fail: every system that Go supports has both clocks
		return time.Duration(t.Nano())
	}
}
