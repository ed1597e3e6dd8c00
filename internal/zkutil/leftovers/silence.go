package leftovers

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Silence bounds the waits for deletions while no server answers a write. All waits of a silence share one limit, which
// counts from the first of them. So a program that gives up many elections and leases without a server waits once, not
// once for each. The zero value is a silence in which no wait began. The caller serializes all calls.
type Silence struct {
	since time.Time // when the first wait began; zero: no wait yet
}

// Deadline returns until when to wait for a deletion, for a caller whose wait began at beganAt. The wait lasts for limit
// at most, and reaches at least to answerBy within the limit. answerBy is when a new connection has to give its first answer, zero
// without a connection.
func (s *Silence) Deadline(beganAt time.Time, limit time.Duration, answerBy time.Time) time.Time {
	if s.since.IsZero() {
		s.since = beganAt
	}
	return zkutil.Earliest(beganAt.Add(limit), zkutil.Latest(s.since.Add(limit), answerBy))
}

// End ends the silence, because a server answered a write. The next wait begins a new one.
func (s *Silence) End() { *s = Silence{} }
