package zkutil

import (
	"sync"
)

// IsClosed reports whether a channel is closed or has a value.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Changes wakes goroutines that wait for a change of a state. The zero value is ready for use. Both methods are
// called under the lock that protects the state. So a goroutine that reads the state and the channel together
// misses no later change.
type Changes struct {
	next chan struct{} // closed at the next change; nil if no goroutine waits
}

// AnnounceLocked wakes all waiting goroutines.
func (c *Changes) AnnounceLocked() {
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// ChangedLocked returns a channel that is closed at the next change.
func (c *Changes) ChangedLocked() <-chan struct{} {
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// Group counts the functions of the user that are running, so that Close can wait for them.
type Group struct {
	mu      sync.Mutex // protects the fields below
	running int
	idle    chan struct{} // nil until Finish; closed when running is 0
}

// Run runs fn in a new goroutine. After Finish, Run returns false and runs nothing.
func (c *Group) Run(fn func()) bool {
	if !c.Enter() {
		return false
	}
	go func() { // ends with the user's functions; joined in Close
		defer c.Leave()
		fn()
	}()
	return true
}

// Enter counts a function that runs in a goroutine of the caller, until Leave. After Finish, Enter returns false and
// counts nothing.
func (c *Group) Enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		return false
	}
	c.running++
	return true
}

// Leave ends an Enter.
func (c *Group) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if c.running == 0 && c.idle != nil {
		close(c.idle)
	}
}

// Finish refuses new functions. The channel is closed after all functions ended.
func (c *Group) Finish() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == nil {
		c.idle = make(chan struct{})
		if c.running == 0 {
			close(c.idle)
		}
	}
	return c.idle
}
