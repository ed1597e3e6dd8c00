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
	running int          // goroutines that have a slot
}

type shortTask struct {
	fn   func() error
	err  error
	done chan struct{} // closed when fn has returned err

	// Guarded by Session.mu.
	isBegun, isWithdrawn bool
	hasSlot              bool // counts in running
}

// shortTaskKey is the key of the task in the context that its function gets.
type shortTaskKey struct{}

func (t *shortTask) run() {
	defer close(t.done)
	t.err = t.fn()
}

// RunShortTask runs fn in another goroutine and waits for it, so that callers who then wait for hours keep a small
// stack. At most 32 run at once, and begin in the order of the calls; one that repeats a request does not count from then on, see
// leaveSlot. With few users of the session it just runs fn. When ctx or the session ends while fn waits for others, fn does not run.
//
// fn must end soon after ctx, and when the session closes, because Close waits for it: so it waits for no request that cleans up.
func (s *Session) RunShortTask(ctx context.Context, fn func(context.Context) error) error {
	t, err := s.beginShortTask(ctx, fn)
	if err != nil {
		return err
	}
	if t == nil {
		return fn(ctx)
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
func (s *Session) beginShortTask(ctx context.Context, fn func(context.Context) error) (*shortTask, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live.users < fewUsers {
		return nil, nil //nolint:nilnil // documented
	}
	q := &s.shortTasks
	if s.life.isClosingLocked() {
		return nil, zkutil.ErrClosed
	}
	t := &shortTask{done: make(chan struct{})}
	t.fn = func() error { return fn(context.WithValue(ctx, shortTaskKey{}, t)) }
	q.waiting = append(q.waiting, t)
	s.runWaitingLocked()
	return t, nil
}

// runWaitingLocked starts a goroutine for the tasks that are waiting, if there are any, and few enough run.
func (s *Session) runWaitingLocked() {
	q := &s.shortTasks
	if len(q.waiting) > 0 && q.running < maxShortTasks && s.backgroundLocked(func(context.Context) { s.runShortTasks() }) {
		q.running++
	}
}

// leaveSlot gives the slot of a short task to the next one, while the task goes on. ctx is that of the task, or of no task. A task
// leaves its slot before it pauses, because the requests of the others need not wait for that.
func (s *Session) leaveSlot(ctx context.Context) {
	t, _ := ctx.Value(shortTaskKey{}).(*shortTask)
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.hasSlot {
		t.hasSlot = false
		s.shortTasks.running--
		s.runWaitingLocked()
	}
}

// withdrawShortTask reports whether the task has not begun, and keeps it from that.
func (s *Session) withdrawShortTask(t *shortTask) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.isWithdrawn = !t.isBegun
	return t.isWithdrawn
}

// runShortTasks runs tasks until none is waiting, or one of them has left its slot.
func (s *Session) runShortTasks() {
	for t := s.nextShortTask(nil); t != nil; t = s.nextShortTask(t) {
		t.run()
	}
}

// nextShortTask returns the earliest task that is waiting, which takes over the slot of the latest. If there is none, or that has
// left its slot, it counts the caller's goroutine out, and returns nil.
func (s *Session) nextShortTask(latest *shortTask) *shortTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.shortTasks
	if latest != nil {
		if !latest.hasSlot {
			return nil
		}
		latest.hasSlot = false
	}
	for len(q.waiting) > 0 {
		t := q.waiting[0]
		q.waiting[0], q.waiting = nil, q.waiting[1:]
		if !t.isWithdrawn {
			t.isBegun, t.hasSlot = true, true
			return t
		}
	}
	q.waiting = nil // with its room for many
	q.running--
	return nil
}
