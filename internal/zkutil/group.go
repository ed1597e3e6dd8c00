package zkutil

import "sync"

// Group counts the goroutines that run functions of the user, so that Close can wait for them.
type Group struct {
	mu      sync.Mutex // protects the fields below
	running int
	idle    chan struct{} // nil until Finish; closed when running is 0
}

// Run runs fn in a new goroutine. After Finish, Run returns false and runs nothing.
func (c *Group) Run(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		return false
	}
	c.running++
	go func() { // ends with the user's functions; joined in Close
		defer c.ended()
		fn()
	}()
	return true
}

func (c *Group) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if c.running == 0 && c.idle != nil {
		close(c.idle)
	}
}

// Finish refuses new goroutines. The channel is closed when all have ended.
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
