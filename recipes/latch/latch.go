package latch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// LeaderLatch is one participant in the election of a leader. Create it with [New],
// enter the election with Start, leave it with Close.
type LeaderLatch struct {
	path      string // as given
	queue     *zkutil.Queue
	candidate *zkutil.Candidate
	config    config
	handlers  *zkutil.Callbacks // the order of the error handler's calls

	decided chan struct{} // see Decided
	decide  func()        // closes decided

	mu        sync.Mutex    // protects what is below
	term      *term         // the latest; nil: none yet
	failure   error         // why the campaign has ended
	changed   chan struct{} // closed and replaced when one of the above changes
	listeners []*registration
	removed   []<-chan struct{} // closed when a removed listener's last call has returned
	trouble   *recipes.OpError  // see Err
}

// term is one term of leadership.
type term struct {
	lease  *recipes.Lease
	entry  *zkutil.Entry
	began  time.Time
	broken atomic.Bool // a listener has failed as leader
}

// New returns a latch on path, an absolute path below the client's namespace, and
// all latches on that path are one election. Nothing is sent to the server here.
func New(c *recipes.Client, path string, opts ...Option) (*LeaderLatch, error) {
	failed := func(err error) (*LeaderLatch, error) {
		return nil, &recipes.OpError{Op: "latch: new", Path: path, Err: zkutil.Invalid(err)}
	}
	session, dir, err := c.Attach(zkutil.RecipeAccess(), path)
	if err != nil {
		return failed(err)
	}
	cfg, err := configure(opts)
	if err != nil {
		return failed(err)
	}
	l := &LeaderLatch{
		path:    path,
		config:  cfg,
		decided: make(chan struct{}),
		changed: make(chan struct{}),
	}
	l.decide = sync.OnceFunc(func() { close(l.decided) })
	l.queue = &zkutil.Queue{
		Session:  session,
		Recipe:   "latch",
		Dir:      dir,
		Prefix:   "latch-",
		Markers:  zkutil.Markers,
		Data:     cfg.id,
		Rule:     zkutil.Exclusive,
		Keep:     true,
		Behind:   l.onWaiting,
		OnUnseen: func(err error) { l.handle(l.opError("observe", err)) },
	}
	l.candidate = zkutil.NewCandidate(l.queue, func(err error) { l.report(l.opError("stand", err)) })
	l.handlers = l.candidate.Callbacks()
	for _, listener := range cfg.listeners {
		l.AddListener(listener)
	}
	return l, nil
}

func (l *LeaderLatch) opError(op string, err error) *recipes.OpError {
	return &recipes.OpError{Op: "latch: " + op, Path: l.path, Err: err}
}

// Start enters the election and returns at once; without a server it goes on until
// there is one. It fails with ErrClosed after Close, and with ErrAlreadyStarted when it was
// called before.
func (l *LeaderLatch) Start() error {
	if err := l.candidate.Start(l.campaign); err != nil {
		return &recipes.OpError{Op: "latch: start", Path: l.path, Err: err}
	}
	return nil
}

// announce wakes Await. Called under the lock.
func (l *LeaderLatch) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Await waits until this latch leads, and returns its term. When ctx ends first, it fails with an
// error that matches ctx.Err(), the cause of ctx, and what is in the way, see [LeaderLatch.Err].
// Once the latch or its client is closed, started or not, it fails at once with ErrClosed, and the
// text says which of them it is; with ErrSequenceExhausted when the latch has given up; and with
// ErrNotStarted before Start.
func (l *LeaderLatch) Await(ctx context.Context) (*recipes.Lease, error) {
	failed := func(err error) (*recipes.Lease, error) {
		return nil, &recipes.OpError{Op: "latch: await", Path: l.path, Err: err}
	}
	if err := l.candidate.Running(); err != nil {
		return failed(err)
	}
	running, cancel := l.candidate.While(ctx)
	defer cancel()
	for {
		l.mu.Lock()
		t, failure, changed := l.term, l.failure, l.changed
		l.mu.Unlock()
		if err := l.candidate.Running(); err != nil {
			return failed(err)
		}
		switch {
		case failure != nil:
			return failed(failure)
		case t != nil && t.entry.Stands():
			return t.lease, nil
		case ctx.Err() != nil:
			return failed(l.withTrouble(zkutil.EndOf(ctx)))
		}
		select {
		case <-changed:
		case <-running.Done():
		}
	}
}

// HasLeadership reports whether this latch leads now, by the clock: after a pause of the
// process it tells the truth even before anybody was told of the loss. The answer may
// be outdated when it is read; work that matters belongs under the term's context.
func (l *LeaderLatch) HasLeadership() bool {
	_, leads := l.Leadership()
	return leads
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

// Decided returns a channel that is closed once it is known for the first time whether
// this latch leads: it does, or another one is ahead of it. It is also closed when
// there will be no answer, because the latch has ended. While the server refuses the latch,
// nothing is decided.
func (l *LeaderLatch) Decided() <-chan struct{} { return l.decided }

// Close leaves the election as the latch's close mode says: see [LeaderLatch.CloseWith].
func (l *LeaderLatch) Close() error { return l.CloseWith(l.config.mode) }

// CloseWith leaves the election. If the latch leads, its term's context ends first, then
// the listeners return, then the znode goes, so that no successor begins while the work
// of this leader still runs. It returns nil once the znode is gone. After the grace of
// [WithStepDownGrace] it returns ErrStepDownGrace while a listener is still running: the
// znode stays until that returns. ErrNodeNotDeleted says that the znode could not be deleted
// within the operation timeout; that goes on in the background.
//
// Inside a callback of this latch, CloseWith asks for all that and returns nil at once.
// Inside a callback of another recipe, another latch's included, it waits, and so it does
// in a goroutine that a callback has started: if the callback waits for that to close the
// latch, both wait for the grace. CloseWith is idempotent, and waits again when called again.
func (l *LeaderLatch) CloseWith(mode CloseMode) error {
	if err := mode.check(); err != nil {
		return &recipes.OpError{Op: "latch: close", Path: l.path, Err: zkutil.Invalid(err)}
	}
	if mode == Silent {
		l.silence()
	}
	l.candidate.Stop()
	l.decide()
	l.mu.Lock()
	l.announce()
	l.mu.Unlock()
	if err := l.candidate.Wait(l.config.grace); err != nil {
		return &recipes.OpError{Op: "latch: close", Path: l.path, Err: err}
	}
	return nil
}
