package zkutil

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// callbacks counts the goroutines that run the user's functions, so that Close can
// join them.
type callbacks struct {
	mu      sync.Mutex // protects what is below
	running int
	idle    chan struct{} // set by Close: closed when running is 0, and nothing starts any more
}

// run starts a goroutine, unless Close has come this far.
func (c *callbacks) run(fn func()) bool {
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

func (c *callbacks) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if c.running == 0 && c.idle != nil {
		close(c.idle)
	}
}

// finish refuses new goroutines. The channel is closed when all have ended.
func (c *callbacks) finish() <-chan struct{} {
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

// Callbacks runs functions of the user one at a time, in the order in which they
// were posted, under no lock. A panic in one is contained and logged.
type Callbacks struct {
	s     *Session
	scope scope // of the candidate whose functions they are, 0 if they are the session's own

	mu      sync.Mutex // protects what is below
	queue   []func()
	running bool
}

// Callbacks returns a new, empty order of callbacks.
func (s *Session) Callbacks() *Callbacks { return &Callbacks{s: s} }

// Callbacks returns a new, empty order of callbacks, inside which Wait of the candidate does
// not wait.
func (c *Candidate) Callbacks() *Callbacks {
	return &Callbacks{s: c.queue.Session, scope: c.scope}
}

// Post appends fn. It never blocks. Once the session is closed it does nothing.
func (c *Callbacks) Post(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, fn)
	if !c.running {
		c.running = c.s.callbacks.run(c.drain)
	}
}

func (c *Callbacks) drain() {
	ended := false
	defer func() {
		if !ended { // runtime.Goexit, as in a failing test: another goroutine goes on
			c.mu.Lock()
			c.running = c.s.callbacks.run(c.drain)
			c.mu.Unlock()
		}
	}()
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.running, ended = false, true
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
		v := recover()
		if v == nil || c == c.s.logs { // nobody is left to tell of a panic in the logger
			return
		}
		stack := string(stackWithoutScopes())
		// In this goroutine: the session may be closed, and take no callback any more.
		c.s.logs.contain(func() {
			c.s.logger().Log(c.s.ctx, slog.LevelError, "panic in a callback", "err", fmt.Sprint(v), "stack", stack)
		})
	}()
	runUserCode(fn, c.s.scope, c.scope)
}

// Barrier returns a channel that is closed once all that was posted before has run.
func (c *Callbacks) Barrier() <-chan struct{} {
	done := make(chan struct{})
	c.Post(func() { close(done) })
	return done
}

// Call runs a function of the user in a goroutine of its own and waits for it; Wait of
// the candidate does not wait inside it. A panic becomes the error that panicked
// makes of it, and an end of the goroutine (runtime.Goexit) becomes an error, too.
func (c *Candidate) Call(fn func() error, panicked func(value any, stack []byte) error) (err error) {
	err = errors.New("the function has ended its goroutine")
	done := make(chan struct{})
	go func() { // ends with the user's function; joined below
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				err = panicked(v, stackWithoutScopes())
			}
		}()
		runUserCode(func() { err = fn() }, c.queue.Session.scope, c.scope)
	}()
	<-done
	return err
}

// Log hands a record of a recipe to the user's logger.
func (s *Session) Log(level slog.Level, msg string, args ...any) { s.log(level, msg, args...) }

// logger is the user's logger, or the program's default of the moment.
func (s *Session) logger() *slog.Logger {
	if s.cfg.Logger != nil {
		return s.cfg.Logger
	}
	return slog.Default()
}

// log hands a record to the user's logger. The handler is the user's code too: it
// must not run under our locks, nor in zk.Conn's goroutines.
func (s *Session) log(level slog.Level, msg string, args ...any) {
	logger := s.logger()
	if logger.Handler() == slog.DiscardHandler {
		return
	}
	s.logs.Post(func() { logger.Log(s.ctx, level, msg, args...) })
}
