//go:build !linux

package session

import "time"

// suspendedTime is zero where the system is not asked: see clock.
func suspendedTime() time.Duration { return 0 }
