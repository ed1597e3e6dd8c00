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

// tidy runs a task that removes what we left in ZooKeeper. It counts as a reason to
// keep the session proven, and Close gives it time on an adopted connection.
func (s *Session) tidy(task func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidyLocked(task)
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
