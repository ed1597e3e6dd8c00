package zkutil

import "time"

// Latest returns the latest of some times, and the zero Time for none.
func Latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// Earliest returns the earlier of two times.
func Earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
