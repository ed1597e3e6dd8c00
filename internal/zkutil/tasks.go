package zkutil

import "context"

// whileOpen derives a context that ends with ErrClosed when the session closes.
func (s *Session) whileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.open, func() { cancel(errShut) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// background runs a task of the session: task must return soon after its context
// ends.
func (s *Session) background(task func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backgroundLocked(task)
}

// backgroundLocked is background for callers that hold s.mu. It reports false, and
// runs nothing, once the session is sealed.
func (s *Session) backgroundLocked(task func(ctx context.Context)) bool {
	if s.sealed {
		return false
	}
	s.tasks.Go(func() { task(s.ctx) }) // owned by the session; ends with s.ctx; joined in Close
	return true
}

// tidy runs a task that removes what a call with ctx left in ZooKeeper. It counts as a
// reason to keep the session proven, and Close gives it time on an adopted connection.
func (s *Session) tidy(ctx context.Context, task func(ctx context.Context)) {
	done := leftBy(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidyLocked(func(ctx context.Context) {
		defer done()
		task(ctx)
	})
}

func (s *Session) tidyLocked(task func(ctx context.Context)) {
	if s.backgroundLocked(func(ctx context.Context) {
		task(ctx)
		s.mu.Lock()
		s.attend(-1)
		s.mu.Unlock()
	}) {
		s.attend(+1)
	}
}

// maxApart bounds how many calls run apart at a time.
const maxApart = 16

// apart runs fn in a goroutine of its own, and waits for it. What fn needs of stack goes
// with it, so that those who wait in a queue for hours keep a small one; and however
// many of them come at once, few are that deep at a time.
func (s *Session) apart(ctx context.Context, fn func() error) (err error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return interrupted(ctx, nil)
	}
	done := make(chan struct{})
	go func() { // ends with fn; joined below
		defer close(done)
		err = fn()
	}()
	<-done
	<-s.slots
	return err
}
