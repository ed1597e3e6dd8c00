//go:build !linux

package trust

import "time"

// suspendedTime returns zero where the system is not asked: see Clock.
func suspendedTime() time.Duration { return 0 }
