package zkutil

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// callbacks counts the goroutines that run the user's functions, so that Close can
// join them.
type callbacks struct {
	running sync.WaitGroup
}

// wait reports whether every function has returned within limit.
func (c *callbacks) wait(limit time.Duration) bool {
	done := make(chan struct{})
	go func() { // ends with the user's functions
		c.running.Wait()
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Callbacks runs functions of the user one at a time, in the order in which they
// were posted, under no lock. A panic in one is contained and logged.
type Callbacks struct {
	s *Session

	mu      sync.Mutex // protects what is below
	queue   []func()
	running bool
}

// Callbacks returns a new, empty order of callbacks.
func (s *Session) Callbacks() *Callbacks { return &Callbacks{s: s} }

// Post appends fn. It never blocks.
func (c *Callbacks) Post(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, fn)
	if c.running {
		return
	}
	c.running = true
	c.s.callbacks.running.Go(c.drain) // owned by the session; ends when the queue is empty
}

func (c *Callbacks) drain() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.running = false
			c.mu.Unlock()
			return
		}
		fn := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		c.contain(fn)
	}
}

func (c *Callbacks) contain(fn func()) {
	defer func() {
		if v := recover(); v != nil && c != c.s.logs {
			c.s.log(slog.LevelError, "panic in a callback", "err", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	fn()
}

// log hands a record to the user's logger. The handler is the user's code too: it
// must not run under our locks, nor in zk.Conn's goroutines.
func (s *Session) log(level slog.Level, msg string, args ...any) {
	if s.cfg.Logger.Handler() == slog.DiscardHandler {
		return
	}
	s.logs.Post(func() { s.cfg.Logger.Log(s.ctx, level, msg, args...) })
}
