package session

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// maxShortTasks bounds how many short tasks run at a time. With less than fewUsers users of the session, large stacks
// cost less than the wake-ups between two goroutines.
const maxShortTasks, fewUsers = 32, 64

// shortTasks are run by a few goroutines. One that has run a task runs the next, because its stack has grown by then:
// a new one would copy its stack twice. It ends when no task is waiting. Guarded by Session.mu.
type shortTasks struct {
	waiting []*shortTask // the earliest first; some may be withdrawn
	running int          // goroutines
}

type shortTask struct {
	fn          func() error
	err         error
	done        chan struct{} // closed when fn has returned err
	isBegun     bool          // guarded by Session.mu
	isWithdrawn bool          // likewise
}

func (t *shortTask) run() {
	defer close(t.done)
	t.err = t.fn()
}

// RunShortTask runs fn in another goroutine and waits for it, so that callers who then wait for hours keep a small
// stack. At most 32 run at once, and begin in the order of the calls. With few users of the session it just runs fn. When ctx or the
// session ends while fn waits for others, fn does not run.
//
// fn must end soon after ctx, and when the session closes, because Close waits for it: so it waits for no request that cleans up.
func (s *Session) RunShortTask(ctx context.Context, fn func() error) error {
	t, err := s.beginShortTask(fn)
	if err != nil {
		return err
	}
	if t == nil {
		return fn()
	}
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		err = zkutil.Interrupted(ctx, nil)
	case <-s.life.open.Done():
		err = zkutil.ErrClosed
	}
	if s.withdrawShortTask(t) {
		return err
	}
	<-t.done // soon, for the same reason
	return t.err
}

// beginShortTask queues a task, and starts a goroutine for it if few enough run. It returns nil for a session with few users.
func (s *Session) beginShortTask(fn func() error) (*shortTask, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live.users < fewUsers {
		return nil, nil //nolint:nilnil // documented
	}
	q := &s.shortTasks
	if s.life.isClosingLocked() {
		return nil, zkutil.ErrClosed
	}
	if q.running < maxShortTasks {
		q.running++
		s.backgroundLocked(func(context.Context) { s.runShortTasks() })
	}
	t := &shortTask{fn: fn, done: make(chan struct{})}
	q.waiting = append(q.waiting, t)
	return t, nil
}

// withdrawShortTask reports whether the task has not begun, and keeps it from that.
func (s *Session) withdrawShortTask(t *shortTask) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.isWithdrawn = !t.isBegun
	return t.isWithdrawn
}

// runShortTasks runs tasks until none is waiting.
func (s *Session) runShortTasks() {
	for t := s.nextShortTask(); t != nil; t = s.nextShortTask() {
		t.run()
	}
}

// nextShortTask returns the earliest task that is waiting. If there is none it counts the caller's goroutine out, and returns nil.
func (s *Session) nextShortTask() *shortTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.shortTasks
	for len(q.waiting) > 0 {
		t := q.waiting[0]
		q.waiting[0], q.waiting = nil, q.waiting[1:]
		if !t.isWithdrawn {
			t.isBegun = true
			return t
		}
	}
	q.waiting = nil // with its room for many
	q.running--
	return nil
}
