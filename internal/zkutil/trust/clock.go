package trust

import (
	"sync"
	"time"
)

// Clock is the clock of trust. It counts the time during which the machine was suspended, because the servers'
// clocks go on then, while Go's monotonic clock (CLOCK_MONOTONIC) and timers stand still. On a system that does
// not report suspensions, the two clocks are the same.
type Clock struct {
	mu        sync.Mutex           // protects the fields below
	suspended func() time.Duration // in total, since some moment
	last      time.Duration
}

// NewClock returns a clock. suspended returns the total time for which the machine has been suspended; if
// suspended is nil, the clock asks the system. A Clock may be used by several goroutines.
func NewClock(suspended func() time.Duration) *Clock {
	if suspended == nil {
		suspended = newSuspension().length
	}
	return &Clock{suspended: suspended}
}

// suspendError bounds the error of suspended, which reads two clocks one after the other. A smaller change is
// not a suspension.
const suspendError = 10 * time.Millisecond

// Now returns the time by this clock.
func (c *Clock) Now() time.Time { return time.Now().Add(c.offset()) }

// Local converts a time by this clock into a time for comparison with time.Now.
func (c *Clock) Local(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(-c.offset())
}

// offset returns how far this clock is ahead of Go's. The offset never falls.
func (c *Clock) offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := c.suspended()
	if total > c.last+suspendError {
		c.last = total
	}
	return c.last
}

// suspension knows the total time for which the machine has been suspended. The exact answer takes system
// calls, and the clock of trust is read some thirty times for each lock. So the system is asked only from time
// to time, and as soon as Go's two clocks disagree: while the machine is suspended the wall clock goes on, and
// the monotonic clock stands still. A suspension is noticed late, by up to exactFor, only if shorter than
// suspendError/2, or if somebody then sets the wall clock back by just as much.
//
// A suspension belongs to one clock, whose lock guards the fields.
type suspension struct {
	exact  func() time.Duration
	clocks func() (wall, monotonic time.Duration) // since some moment

	total  time.Duration // the latest answer of exact
	lead   time.Duration // of the wall clock at that time
	readAt time.Duration // when exact was asked, by the monotonic clock; 0: never
}

// exactFor is how long an answer of exact is used.
const exactFor = 10 * time.Millisecond

func newSuspension() *suspension {
	began := time.Now().Add(-time.Second) // so that no reading is zero
	return &suspension{exact: suspendedTime, clocks: func() (wall, monotonic time.Duration) {
		now := time.Now()
		return now.Round(0).Sub(began.Round(0)), now.Sub(began)
	}}
}

// length returns the total time for which the machine has been suspended.
func (s *suspension) length() time.Duration {
	wall, monotonic := s.clocks() // before exact: a suspension in between shows the next time
	lead := wall - monotonic
	if s.readAt == 0 || monotonic-s.readAt >= exactFor || (lead-s.lead).Abs() > suspendError/2 {
		s.total, s.lead, s.readAt = s.exact(), lead, monotonic
	}
	return s.total
}
