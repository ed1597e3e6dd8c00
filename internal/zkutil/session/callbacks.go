package session

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Callbacks runs functions of the user one at a time, in the order in which they
// were posted, under no lock. A panic in one of them is logged, and the next one runs.
type Callbacks struct {
	s     *Session
	scope zkutil.Scope // of the candidate whose functions they are, 0 if they are the session's own

	mu        sync.Mutex // protects what is below
	queue     []func()
	isRunning bool
}

// Callbacks returns a new order of callbacks.
func (s *Session) Callbacks() *Callbacks { return &Callbacks{s: s} }

// CallbacksIn returns a new order of callbacks, which run inside a scope.
func (s *Session) CallbacksIn(scope zkutil.Scope) *Callbacks { return &Callbacks{s: s, scope: scope} }

// Scope is that of the user's functions that the session runs.
func (s *Session) Scope() zkutil.Scope { return s.scope }

// Post appends fn. It never blocks. Once the session is closed it does nothing.
func (c *Callbacks) Post(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, fn)
	if !c.isRunning {
		c.isRunning = c.s.life.callbacks.Run(c.runQueued)
	}
}

// runQueued runs functions until none is left.
func (c *Callbacks) runQueued() {
	isEmpty := false
	defer func() {
		if !isEmpty { // runtime.Goexit, as in a failing test: another goroutine goes on
			c.mu.Lock()
			c.isRunning = c.s.life.callbacks.Run(c.runQueued)
			c.mu.Unlock()
		}
	}()
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.isRunning, isEmpty = false, true
			c.mu.Unlock()
			return
		}
		fn := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		c.runContained(fn)
	}
}

// runContained runs a function and logs its panic.
func (c *Callbacks) runContained(fn func()) {
	defer func() {
		v := recover()
		if v == nil || c == c.s.logs { // a panic in the logger can't be logged
			return
		}
		stack := string(zkutil.StackWithoutScopes())
		// The record is written in this goroutine, because a closed session takes no callback any more.
		c.s.logs.runContained(func() {
			c.s.logger().Log(c.s.life.tasksCtx, slog.LevelError, "panic in a callback", "err", fmt.Sprint(v), "stack", stack)
		})
	}()
	zkutil.RunUserCode(fn, c.s.scope, c.scope)
}

// Barrier returns a channel that is closed once all that was posted before has run: at once if nothing is left to run.
func (c *Callbacks) Barrier() <-chan struct{} {
	done := make(chan struct{})
	c.mu.Lock()
	isRunning := c.isRunning
	c.mu.Unlock()
	if isRunning {
		c.Post(func() { close(done) })
	} else {
		close(done)
	}
	return done
}

// logger is the user's logger, or the program's default of the moment.
func (s *Session) logger() *slog.Logger {
	if s.cfg.Logger != nil {
		return s.cfg.Logger
	}
	return slog.Default()
}

// Log hands a record to the user's logger, in a callback: the handler is the user's code too, and
// must not run under our locks, nor in zk.Conn's goroutines.
func (s *Session) Log(level slog.Level, msg string, args ...any) {
	logger := s.logger()
	if logger.Handler() == slog.DiscardHandler {
		return
	}
	s.logs.Post(func() { logger.Log(s.life.tasksCtx, level, msg, args...) })
}

// logAdapter logs the lines of zk.Conn at debug level. It is for zk.WithLogInfo(false), because the
// other lines print session ids.
type logAdapter struct{ s *Session }

var _ zk.Logger = logAdapter{}

// echoes are the begins of zk.Conn's lines about what the session logs itself.
var echoes = []string{ //nolint:gochecknoglobals // a constant list
	"connected to", "failed to connect", "authentication failed", "send loop terminated", "recv loop terminated", "Failed to set previous watches",
}

func (a logAdapter) Printf(format string, args ...any) {
	if slices.ContainsFunc(echoes, func(begin string) bool { return strings.HasPrefix(format, begin) }) {
		return
	}
	a.s.Log(slog.LevelDebug, "zk.Conn: "+fmt.Sprintf(format, args...))
}
