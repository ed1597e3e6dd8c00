//go:build !linux

package zkutil

import "time"

// suspendedTime is zero where the system is not asked: see clock.
func suspendedTime() time.Duration { return 0 }
