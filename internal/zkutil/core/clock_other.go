//go:build !linux && !darwin

package core

import "time"

// suspendedTime returns zero. On Windows that is exact, because Go's clock is the interrupt time, which includes sleep and
// hibernation, unlike QueryUnbiasedInterruptTime. Other systems are not asked.
func suspendedTime() time.Duration { return 0 }
