package zkutil

// Changes wakes goroutines that wait until something changes. The zero value is ready for use.
// Both methods are called under the lock that protects what changes. So a goroutine that reads a
// state, and the channel with it, misses no change after that.
type Changes struct {
	next chan struct{} // closed at the next change; nil: nobody has asked for it
}

// AnnounceLocked wakes all goroutines that wait now.
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
