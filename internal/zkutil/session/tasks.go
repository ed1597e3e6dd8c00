package session

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Context ends when the session closes.
func (s *Session) Context() context.Context { return s.life.open }

// WhileOpen derives a context that ends with ErrClosed when the session closes.
func (s *Session) WhileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
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

// Background runs a task of the session in a goroutine. The task has to return soon after its context
// ends. Background reports false, and runs nothing, once the session is sealed.
func (s *Session) Background(task func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backgroundLocked(task)
}

// backgroundLocked is Background for callers that hold s.mu.
func (s *Session) backgroundLocked(task func(ctx context.Context)) bool {
	if s.life.isSealedLocked() {
		return false
	}
	s.life.tasks.Go(func() { task(s.life.tasksCtx) }) // owned by the session; ends with s.life.tasksCtx; joined in Close
	return true
}

// cleanUp runs a task that removes what a call with ctx has left in ZooKeeper, and notes it in the
// leftovers of ctx. The session is kept proven meanwhile. Close of an adopted connection waits for
// the task, for an operation timeout at most.
func (s *Session) cleanUp(ctx context.Context, task func(ctx context.Context)) {
	end := beginDeletion(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanUpLocked(func(ctx context.Context) {
		defer end()
		task(ctx)
	})
}

// cleanUpLocked is cleanUp for callers that hold s.mu and keep no leftovers.
func (s *Session) cleanUpLocked(task func(ctx context.Context)) {
	if s.backgroundLocked(func(ctx context.Context) {
		task(ctx)
		s.mu.Lock()
		s.releaseLocked()
		s.mu.Unlock()
	}) {
		s.retainLocked()
	}
}

// startTimer returns a timer, which has to be given back to stopTimer.
func (s *Session) startTimer(limit time.Duration) *time.Timer {
	timer, isUsed := s.timers.Get().(*time.Timer)
	if !isUsed {
		return time.NewTimer(limit)
	}
	timer.Reset(limit)
	return timer
}

func (s *Session) stopTimer(timer *time.Timer) {
	timer.Stop()
	s.timers.Put(timer)
}

// RunCampaign runs a campaign for leadership: the session stands until it has returned. It reports
// false, and runs nothing, once Close has begun to wait for the campaigns.
func (s *Session) RunCampaign(campaign func()) bool { return s.life.campaigns.Run(campaign) }
