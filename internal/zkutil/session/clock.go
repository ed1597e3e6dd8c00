package session

import (
	"sync"
	"time"
)

// clock is the clock of trust. It counts the time in which the machine was suspended, because the
// servers' clocks go on then, while Go's monotonic clock (CLOCK_MONOTONIC) and its timers stand
// still. On a system that does not tell how long it was suspended, the two clocks are the same.
type clock struct {
	mu        sync.Mutex           // protects what is below
	suspended func() time.Duration // in all, since some moment
	last      time.Duration
}

// suspendError bounds the error of suspended, which reads two clocks one after the other. A smaller
// change is no suspension.
const suspendError = 10 * time.Millisecond

// now is the time by this clock.
func (c *clock) now() time.Time { return time.Now().Add(c.offset()) }

// local converts a time by this clock into one to compare with time.Now.
func (c *clock) local(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(-c.offset())
}

// offset is by how much this clock is ahead of Go's. It never falls.
func (c *clock) offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := c.suspended()
	if total > c.last+suspendError {
		c.last = total
	}
	return c.last
}
