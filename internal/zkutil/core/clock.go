package core

import (
	"math"
	"sync"
	"time"
)

// Clock is the clock of trust. It counts the time during which the machine was suspended, because the servers' clocks
// keep running then. On Linux and macOS, Go's monotonic clock and timers stand still meanwhile, and Clock adds the time
// of the suspension. On Windows, Go's clock counts suspensions itself. On other systems the time of a suspension is
// unknown, and the two clocks are the same.
type Clock struct {
	mu        sync.Mutex           // protects the fields below
	suspended func() time.Duration // in total, since some moment
	last      time.Duration
}

// NewClock returns a clock. suspended returns the total time for which the machine was suspended; if suspended is nil,
// the clock asks the system. A Clock may be used by several goroutines.
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

// suspension knows the total time for which the machine was suspended. The exact answer takes system calls, and the
// clock of trust is read some thirty times for each lock. So the system is asked only from time to time, and as soon as
// Go's two clocks disagree. While the machine is suspended, the wall clock runs and the monotonic clock stands still. A
// suspension is noticed late, by up to exactFor, only if shorter than suspendError/2, or if the wall clock is then set
// back by just as much.
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

// length returns the total time for which the machine was suspended.
func (s *suspension) length() time.Duration {
	wall, monotonic := s.clocks() // before exact, so that a suspension in between shows the next time
	lead := wall - monotonic
	if s.readAt == 0 || monotonic-s.readAt >= exactFor || (lead-s.lead).Abs() > suspendError/2 {
		s.total, s.lead, s.readAt = s.exact(), lead, monotonic
	}
	return s.total
}

// leadOf returns how far a clock is ahead of a base clock. The thread may be interrupted between two readings. Of several attempts, the
// one that took the least time is the most exact.
func leadOf(clock, base func() time.Duration) (lead time.Duration) {
	const attempts, quick = 20, 50 * time.Microsecond
	least := time.Duration(math.MaxInt64)
	for range attempts {
		before, reading, after := base(), clock(), base()
		if took := after - before; took < least {
			lead, least = reading-after, took
		}
		if least < quick {
			break
		}
	}
	return lead
}
