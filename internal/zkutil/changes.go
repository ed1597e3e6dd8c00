package zkutil

// Changes wakes goroutines that wait for a change of a state. The zero value is ready for use. Both methods are
// called under the lock that protects the state. So a goroutine that reads the state and the channel together
// misses no later change.
type Changes struct {
	next chan struct{} // closed at the next change; nil: nobody waits
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
