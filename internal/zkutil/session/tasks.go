package session

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
)

// Context returns a context that ends when the session closes.
func (s *Session) Context() context.Context { return s.life.open }

// finishingKey marks a context. See Finishing.
type finishingKey struct{}

// Finishing derives a context whose requests are sent even while the session closes, for the end of work for which Close
// waits. Such requests wait for a connection as long as ctx lasts.
func Finishing(ctx context.Context) context.Context {
	return context.WithValue(ctx, finishingKey{}, true)
}

func isFinishing(ctx context.Context) bool { return ctx.Value(finishingKey{}) != nil }

// WhileOpen derives a context that ends with ErrClosed when the session closes, unless ctx is of Finishing.
func (s *Session) WhileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	if isFinishing(ctx) {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life.open, func() { cancel(zkutil.ErrShut) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// pause waits for a pause, or until ctx or the session ends.
func (s *Session) pause(ctx context.Context, pause time.Duration) {
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	zkutil.Pause(ctx, pause)
}

// Background runs a task of the session in a goroutine. The task has to return soon after its context ends.
// Once the session is sealed, Background runs nothing and reports false.
func (s *Session) Background(task func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backgroundLocked(task)
}

// backgroundLocked is Background for callers that hold s.mu.
func (s *Session) backgroundLocked(task func(ctx context.Context)) bool {
	if s.core.Phase >= core.Sealed {
		return false
	}
	s.life.tasks.Go(func() { task(s.life.tasksCtx) }) // owned by the session; ends with s.life.tasksCtx; joined in Close
	return true
}

// CleanUp runs a task that removes the leftovers of a call with ctx from ZooKeeper, and adds the task to the
// leftovers of ctx. The session counts as in use meanwhile. Once the session is sealed, CleanUp runs nothing and reports false.
func (s *Session) CleanUp(ctx context.Context, task func(ctx context.Context)) bool {
	end := leftovers.Begin(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	isBegun := s.backgroundLocked(func(ctx context.Context) {
		task(ctx)
		end()
		s.Release()
	})
	if !isBegun {
		end()
		return false
	}
	s.keeper.retainLocked()
	return true
}

// Callbacks returns a new order of the user's functions.
func (s *Session) Callbacks() *callbacks.Order { return s.CallbacksIn(0) }

// CallbacksIn returns a new order of the user's functions, which run inside a scope.
func (s *Session) CallbacksIn(scope zkutil.Scope) *callbacks.Order {
	return s.callbacks.NewOrder(scope)
}

// Scope returns the scope of the user's functions run by the session.
func (s *Session) Scope() zkutil.Scope { return s.scope }

// BeginAcquisition calls the hooks of the user at the start of an acquisition. Without hooks, it returns nil.
func (s *Session) BeginAcquisition(ctx context.Context, subject trace.Subject, scope zkutil.Scope) *trace.Acquisition {
	return trace.Begin(ctx, s.cfg.Traces, subject, func(fn func()) { s.callbacks.Call(scope, fn) })
}

// afterTimeout runs a task of the session a session timeout from now. Meanwhile it takes a timer instead of a goroutine, because a cut may repeat
// the creates of thousands of waiters.
func (s *Session) afterTimeout(task func(ctx context.Context)) {
	time.AfterFunc(s.Timeout(), func() { s.Background(task) })
}
