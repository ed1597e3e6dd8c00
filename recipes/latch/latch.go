package latch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/election"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// LeaderLatch is one participant in the election of a leader. Create a latch with [New], enter the election
// with Start, and leave with Close.
type LeaderLatch struct {
	base      recipe.Base
	candidate *election.Candidate
	config    config

	handlerCalls *callbacks.Order // of the error handler

	decided      chan struct{} // see Decided
	closeDecided func()        // may be called several times

	mu        sync.Mutex // protects the fields below
	term      *term      // the latest; nil: none yet
	endError  error      // the reason for the end of the campaign; nil if not ended
	changes   zkutil.Changes
	listeners []*registration
	trouble   *recipes.OpError // see Err
	isOverrun bool             // trouble is ErrWorkGoesOn. Not asked of trouble, which may have an error of the user

	removedDone []<-chan struct{} // one for each removed listener, closed after its last call returned
}

// term is one term of leadership.
type term struct {
	lease     *recipes.Lease
	entry     *session.Entry
	beganAt   time.Time
	hasFailed atomic.Bool // IsLeader of a listener panicked
}

// New returns a latch on path, an absolute path below the client's namespace. All latches on the same path are
// in one election. New sends nothing to the server.
//
// A path with a segment that has the name of a contender, such as lock-0000000000, is refused with
// ErrInvalidPath: such a znode would block a lock or an election on the parent path.
func New(c *recipes.Client, path string, opts ...Option) (*LeaderLatch, error) {
	l := &LeaderLatch{decided: make(chan struct{})}
	l.closeDecided = sync.OnceFunc(func() { close(l.decided) })
	var err error
	l.base, err = recipe.New(c, path, queue.Queue{
		Recipe:           "latch",
		Prefix:           "latch-",
		Rule:             queue.Exclusive,
		KeepNode:         true,
		OnWaiting:        l.onWaiting,
		OnObserveRefused: func(err error) { l.postToHandler(l.base.OpError("observe", err)) },
	})
	if err != nil {
		return nil, err
	}
	if l.config, err = configure(opts); err != nil {
		return nil, l.base.InvalidArgument("new", err)
	}
	l.base.Queue.Data, l.base.Queue.Name, l.base.Queue.MaxHold = l.config.id, l.config.name, l.config.maxHold
	if priority := l.config.priority; priority != nil {
		l.base.SetPriority(*priority)
	}
	l.candidate = election.NewCandidate(l.base.Queue, func(err error) { l.reportTrouble(l.base.OpError("join", err)) })
	l.handlerCalls = l.candidate.Callbacks()
	for _, listener := range l.config.listeners {
		l.AddListener(listener)
	}
	return l, nil
}

// Start enters the election and returns at once. The latch waits for a server as long as necessary. Start fails
// with ErrClosed after Close, and with ErrAlreadyStarted when called again.
func (l *LeaderLatch) Start() error {
	if err := l.base.Check("start"); err != nil {
		return err
	}
	if err := l.candidate.Start(l.runCampaign); err != nil {
		return l.base.OpError("start", err)
	}
	return nil
}

// Await blocks until this latch leads, and returns the term. Await fails
//
//   - when ctx ends first, or ended before the call, with a *recipes.WaitError, which matches ErrNotAcquired,
//     ctx.Err(), the cause of ctx, and the latest trouble, see [LeaderLatch.Err];
//   - with ErrClosed, at once, when the latch or its client is closed, started or not. The text says which was
//     closed;
//   - with ErrSequenceExhausted if the latch gave up;
//   - with ErrNotStarted before Start.
func (l *LeaderLatch) Await(ctx context.Context) (*recipes.Lease, error) {
	if err := l.base.Check("await"); err != nil {
		return nil, err
	}
	failed := func(err error) (*recipes.Lease, error) {
		return nil, l.base.OpError("await", err)
	}
	if err := l.candidate.CheckRunning(); err != nil {
		return failed(err)
	}
	startedAt := time.Now()
	whileRunning, cancel := l.candidate.WithCampaign(ctx)
	defer cancel()
	for {
		l.mu.Lock()
		t, endError, changed := l.term, l.endError, l.changes.ChangedLocked()
		l.mu.Unlock()
		if err := l.candidate.CheckRunning(); err != nil {
			return failed(err)
		}
		switch {
		case endError != nil:
			return failed(endError)
		case ctx.Err() != nil:
			err := l.candidate.NotAcquired(l.withTrouble(zkutil.EndOf(ctx)), startedAt)
			return failed(recipe.PublicError(err))
		case t != nil && t.entry.Stands():
			return t.lease, nil
		}
		select {
		case <-changed:
		case <-whileRunning.Done():
		}
	}
}

// HasLeadership reports whether this latch leads now. It goes by the clock. After a pause of the process the answer is
// right even before the term's context ends. The answer may be outdated by the time the caller reads it, so do critical
// work under the term's context.
func (l *LeaderLatch) HasLeadership() bool {
	_, isLeader := l.Leadership()
	return isLeader
}

// Leadership returns the present term if this latch leads, as HasLeadership does.
func (l *LeaderLatch) Leadership() (lease *recipes.Lease, ok bool) {
	l.mu.Lock()
	t := l.term
	l.mu.Unlock()
	if t == nil || !t.entry.Stands() {
		return nil, false
	}
	return t.lease, true
}

// Decided returns a channel that is closed once the first election is decided, because this latch leads or another
// participant is ahead. The channel is also closed when the latch ends. It stays open while the server refuses the
// latch.
func (l *LeaderLatch) Decided() <-chan struct{} {
	l.base.MustCheck("decided")
	return l.decided
}

// Close is CloseWith with the mode of [WithCloseMode].
func (l *LeaderLatch) Close() error { return l.CloseWith(l.config.mode) }

// CloseWith leaves the election. If the latch leads, the term's context ends first, then the listeners return, then the
// znode is deleted. So no successor leads while the work of this leader still runs. CloseWith returns nil when the
// znode is deleted, or when the client is closed, because the znode is deleted with the session. It returns
// ErrStepDownGrace if a listener still runs after the grace of [WithStepDownGrace]. Then the znode exists until the
// listener returns. It returns ErrNodeNotDeleted if the znode could not be deleted within the operation timeout. Then
// the deletion is repeated in the background. Elections and leases of a client that are closed while no server answers
// share one operation timeout. CloseWith is idempotent, and waits again when called again.
//
// Inside a callback of this latch, CloseWith starts the whole sequence and returns nil at once. Inside a
// callback of another recipe or of another latch CloseWith waits. It also waits in a goroutine started by a
// callback of this latch: if the callback waits for the goroutine, both wait for the grace.
func (l *LeaderLatch) CloseWith(mode CloseMode) error {
	if err := l.base.Check("close"); err != nil {
		return err
	}
	if err := mode.check(); err != nil {
		return l.base.InvalidArgument("close", err)
	}
	if mode == Silent {
		l.removeAllListeners()
	}
	l.candidate.Stop()
	l.closeDecided()
	l.mu.Lock()
	l.changes.AnnounceLocked()
	l.mu.Unlock()
	if err := l.candidate.Wait(l.config.grace); err != nil {
		return l.base.OpError("close", err)
	}
	return nil
}
