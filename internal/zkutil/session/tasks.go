package session

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Context returns a context that ends when the session closes.
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

// Background runs a task of the session in a goroutine. The task has to return soon after its context ends.
// Once the session is sealed, Background runs nothing and reports false.
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

// cleanUp runs a task that removes the leftovers of a call with ctx from ZooKeeper, and adds the task to the
// leftovers of ctx. The session counts as in use meanwhile. Close of an adopted connection waits for the task,
// for an operation timeout at most. Once the session is sealed, cleanUp runs nothing and reports false.
func (s *Session) cleanUp(ctx context.Context, task func(ctx context.Context)) bool {
	end := beginDeletion(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	isBegun := s.cleanUpLocked(func(ctx context.Context) {
		defer end()
		task(ctx)
	})
	if !isBegun {
		end()
	}
	return isBegun
}

// cleanUpLocked is cleanUp for callers that hold s.mu and keep no leftovers.
func (s *Session) cleanUpLocked(task func(ctx context.Context)) bool {
	isBegun := s.backgroundLocked(func(ctx context.Context) {
		task(ctx)
		s.mu.Lock()
		s.keeper.releaseLocked()
		s.mu.Unlock()
	})
	if isBegun {
		s.keeper.retainLocked()
	}
	return isBegun
}

// timers is a pool of stopped timers, for waits that are mostly short.
type timers struct{ sync.Pool }

// start returns a timer, which the caller has to give back with stop.
func (t *timers) start(limit time.Duration) *time.Timer {
	timer, isUsed := t.Get().(*time.Timer)
	if !isUsed {
		return time.NewTimer(limit)
	}
	timer.Reset(limit)
	return timer
}

func (t *timers) stop(timer *time.Timer) {
	timer.Stop()
	t.Put(timer)
}

// RunCampaign runs a campaign for leadership: the session stands until campaign has returned. work is the
// recipe and the path, as shown in the errors of Close and Shutdown. Once Close has begun to wait for the
// campaigns, RunCampaign runs nothing and reports false.
func (s *Session) RunCampaign(work string, campaign func()) bool {
	s.life.countWork(work, 1)
	isRunning := s.life.campaigns.Run(func() {
		defer s.life.countWork(work, -1)
		campaign()
	})
	if !isRunning {
		s.life.countWork(work, -1)
	}
	return isRunning
}

// countWork counts the campaigns of one recipe and path.
func (l *lifecycle) countWork(work string, change int) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.works[work] += change; l.works[work] == 0 {
		delete(l.works, work)
	}
}

// maxShortTasks bounds how many short tasks run at a time. With fewer than fewUsers users of the session, large
// stacks cost less than the wake-ups between two goroutines.
const maxShortTasks, fewUsers = 32, 64

// shortTasks are run by a few goroutines. A goroutine that has run a task also runs the next, because its stack
// has already grown: a new goroutine would copy its stack twice. A goroutine ends when no task is waiting.
// Guarded by Session.mu.
type shortTasks struct {
	s       *Session
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

// shortTaskKey is the key of the task in the context passed to the task's function.
type shortTaskKey struct{}

func (t *shortTask) run() {
	defer close(t.done)
	t.err = t.fn()
}

// RunShortTask runs fn in another goroutine and waits for the result, so that callers who then wait for hours
// keep a small stack. At most 32 tasks run at once, and begin in the order of the calls; a task that repeats a
// request no longer counts, see leaveSlot. With few users of the session, RunShortTask calls fn directly. When
// ctx or the session ends before the turn of fn has come, fn does not run.
//
// fn must end soon after ctx, and when the session closes, because Close waits for fn: so fn must not wait for
// a request that cleans up.
func (s *Session) RunShortTask(ctx context.Context, fn func(context.Context) error) error {
	t, err := s.shortTasks.begin(ctx, fn)
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
	if s.shortTasks.withdraw(t) {
		return err
	}
	<-t.done // soon, because fn ends with ctx and the session
	return t.err
}

// begin queues a task, and starts a goroutine if few enough run. begin returns nil for a session with few
// users.
func (q *shortTasks) begin(ctx context.Context, fn func(context.Context) error) (*shortTask, error) {
	s := q.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeper.users < fewUsers {
		return nil, nil //nolint:nilnil // documented
	}
	if s.life.isClosingLocked() {
		return nil, zkutil.ErrClosed
	}
	t := &shortTask{done: make(chan struct{})}
	t.fn = func() error { return fn(context.WithValue(ctx, shortTaskKey{}, t)) }
	q.waiting = append(q.waiting, t)
	q.runWaitingLocked()
	return t, nil
}

// runWaitingLocked starts a goroutine for waiting tasks, if there are any and few enough goroutines run.
func (q *shortTasks) runWaitingLocked() {
	if len(q.waiting) > 0 && q.running < maxShortTasks && q.s.backgroundLocked(func(context.Context) { q.run() }) {
		q.running++
	}
}

// leaveSlot gives the slot of a short task to the next task, while the task itself continues. ctx is the
// context of the task, or of no task. A task leaves its slot before a pause, because the requests of other
// tasks need not wait for the pause.
func (q *shortTasks) leaveSlot(ctx context.Context) {
	s := q.s
	t, _ := ctx.Value(shortTaskKey{}).(*shortTask)
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.hasSlot {
		t.hasSlot = false
		q.running--
		q.runWaitingLocked()
	}
}

// withdraw reports whether the task has not begun, and if so prevents the start.
func (q *shortTasks) withdraw(t *shortTask) bool {
	s := q.s
	s.mu.Lock()
	defer s.mu.Unlock()
	t.isWithdrawn = !t.isBegun
	return t.isWithdrawn
}

// run runs tasks until none is waiting, or a task has left its slot.
func (q *shortTasks) run() {
	for t := q.next(nil); t != nil; t = q.next(t) {
		t.run()
	}
}

// next returns the earliest waiting task, which takes over the slot of the latest. If no task is waiting, or
// the latest has left its slot, next returns nil, and the caller's goroutine no longer counts.
func (q *shortTasks) next(latest *shortTask) *shortTask {
	s := q.s
	s.mu.Lock()
	defer s.mu.Unlock()
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
	q.waiting = nil // frees the room for many
	q.running--
	return nil
}

// Callbacks returns a new order of callbacks.
func (s *Session) Callbacks() *Callbacks { return &Callbacks{s: s} }

// CallbacksIn returns a new order of callbacks, which run inside a scope.
func (s *Session) CallbacksIn(scope zkutil.Scope) *Callbacks { return &Callbacks{s: s, scope: scope} }

// Scope returns the scope of the user's functions run by the session.
func (s *Session) Scope() zkutil.Scope { return s.scope }

// Callbacks runs functions of the user one at a time, in the order of posting, under no lock. A panic in one of
// them is logged, and the next function runs.
type Callbacks struct {
	s     *Session
	scope zkutil.Scope // of the candidate that owns the functions, 0 for the session's own

	mu        sync.Mutex // protects the fields below
	queue     []func()
	isRunning bool
}

// Post appends fn, and never blocks. Once the session is closed Post does nothing. Use Post for calls whose
// number is bounded, because each follows only on the return of the previous calls; use TryPost for all others.
func (c *Callbacks) Post(fn func()) { c.post(fn, math.MaxInt) }

// maxQueued is how many calls may wait behind a hung function of the user, to bound memory.
const maxQueued = 1024

// TryPost is Post, unless maxQueued calls already wait: then TryPost does nothing and reports that the call is
// left out.
func (c *Callbacks) TryPost(fn func()) (isLeftOut bool) {
	isQueued, isClosed := c.post(fn, maxQueued)
	return !isQueued && !isClosed
}

// post appends fn, unless limit calls wait already or the session is closed.
func (c *Callbacks) post(fn func(), limit int) (isQueued, isClosed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) >= limit {
		return false, false
	}
	if !c.isRunning {
		if c.isRunning = c.s.life.callbacks.Run(c.runQueued); !c.isRunning {
			return false, true
		}
	}
	c.queue = append(c.queue, fn)
	return true, false
}

// runQueued runs functions until the queue is empty.
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
		if v == nil || c == c.s.report.logs { // a panic in the logger can't be logged
			return
		}
		c.s.report.logPanic(v, zkutil.StackWithoutScopes())
	}()
	zkutil.RunUserCode(fn, c.s.scope, c.scope)
}

// logPanic logs a panic of the user's code.
func (r *report) logPanic(value any, stack []byte) {
	args := []any{"err", fmt.Sprint(value), "stack", string(stack)}
	if write, isClosed := r.log(slog.LevelError, "panic in a callback", args); isClosed {
		r.logs.runContained(write) // in this goroutine, because a closed session accepts no more callbacks
	}
}

// Barrier returns a channel that is closed once all calls posted before have run: at once if none is left to
// run.
func (c *Callbacks) Barrier() <-chan struct{} {
	done := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isRunning { // and looks at the queue again, under the lock
		c.queue = append(c.queue, func() { close(done) })
	} else {
		close(done)
	}
	return done
}
