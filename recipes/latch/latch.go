package latch

import (
	"context"
	"errors"
	"sync"
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
	order     *zkutil.Callbacks // of the listeners
	mode      CloseMode
	grace     time.Duration

	decided chan struct{} // see Decided
	decide  func()        // closes decided

	mu        sync.Mutex    // protects what is below
	term      *term         // the latest; nil: none yet
	failure   error         // why the campaign has ended
	changed   chan struct{} // closed and replaced when one of the above changes
	listeners []*registration
}

// term is one term of leadership.
type term struct {
	lease *recipes.Lease
	entry *zkutil.Entry
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
	l := &LeaderLatch{
		path:    path,
		order:   session.Callbacks(),
		grace:   defaultGrace,
		decided: make(chan struct{}),
		changed: make(chan struct{}),
	}
	l.decide = sync.OnceFunc(func() { close(l.decided) })
	l.queue = &zkutil.Queue{
		Session: session,
		Recipe:  "latch",
		Dir:     dir,
		Prefix:  "latch-",
		Markers: zkutil.Markers,
		Rule:    zkutil.Exclusive,
		Keep:    true,
		Behind:  l.decide,
	}
	l.candidate = zkutil.NewCandidate(l.queue)
	for _, opt := range opts {
		if opt == nil {
			return failed(errors.New("nil option"))
		}
		if err := opt(l); err != nil {
			return failed(err)
		}
	}
	return l, nil
}

// Start enters the election and returns at once; without a server it goes on until
// there is one. It fails with ErrClosed after Close, or when it was called before.
func (l *LeaderLatch) Start() error {
	if err := l.candidate.Start(l.campaign); err != nil {
		return &recipes.OpError{Op: "latch: start", Path: l.path, Err: err}
	}
	return nil
}

// campaign stands for one term after the other, until ctx ends or the server refuses
// for good.
func (l *LeaderLatch) campaign(ctx context.Context) {
	failure := error(recipes.ErrClosed)
	for ctx.Err() == nil {
		entry, err := l.candidate.Stand(ctx)
		if err != nil {
			failure = err
			break
		}
		l.lead(ctx, &term{recipes.NewLease(entry), entry})
	}
	l.decide()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = failure
	l.announce()
}

// lead serves one term, and ends it in the order that keeps a successor out: first the
// term's context, then the listeners' work, then the znode.
func (l *LeaderLatch) lead(ctx context.Context, t *term) {
	l.take(t)
	select {
	case <-t.entry.Context().Done():
	case <-ctx.Done():
		_ = t.entry.Leave() // a loss, if any, has been told to the listeners
	}
	<-l.drop()
	l.candidate.Vacate(t.entry)
}

// take announces a term.
func (l *LeaderLatch) take(t *term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = t
	l.announce()
	l.decide()
	for _, r := range l.listeners {
		l.order.Post(func() { r.lead(t) })
	}
}

// drop announces the end of a term. The channel is closed when the listeners have
// returned.
func (l *LeaderLatch) drop() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announce()
	for _, r := range l.listeners {
		l.order.Post(r.follow)
	}
	return l.order.Barrier()
}

// announce wakes Await. Called under the lock.
func (l *LeaderLatch) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Await waits until this latch leads, and returns its term. It fails with the error of
// ctx when that ends first; with ErrClosed once the latch or its client is closed; when
// Start was not called; or with the refusal that has ended the campaign, such as
// zk.ErrNoAuth.
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
			return failed(context.Cause(ctx))
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
// there will be no answer, because the latch has failed or was closed.
func (l *LeaderLatch) Decided() <-chan struct{} { return l.decided }

// Leader returns who is first in the election, as the server knows it, or the zero
// Participant when nobody takes part. It needs no Start.
func (l *LeaderLatch) Leader(ctx context.Context) (recipes.Participant, error) {
	first, err := l.queue.Leader(ctx)
	if err != nil {
		return recipes.Participant{}, &recipes.OpError{Op: "latch: leader", Path: l.path, Err: err}
	}
	return recipes.ParticipantOf(first), nil
}

// Participants returns those who take part, in the order in which they will lead, the
// leader first. It is a snapshot: those who leave while it is taken are left out.
func (l *LeaderLatch) Participants(ctx context.Context) ([]recipes.Participant, error) {
	queue, err := l.queue.Participants(ctx)
	if err != nil {
		return nil, &recipes.OpError{Op: "latch: participants", Path: l.path, Err: err}
	}
	return recipes.ParticipantsOf(queue), nil
}

// Observe returns the leader as it changes, the present one first, and the zero
// Participant while nobody takes part. It needs no Start. A slow reader misses leaders that
// are outdated by then. The channel is closed when ctx ends or the client is closed.
func (l *LeaderLatch) Observe(ctx context.Context) <-chan recipes.Participant {
	return zkutil.Observe(ctx, l.queue, recipes.ParticipantOf)
}

// Close leaves the election as the latch's close mode says: see [LeaderLatch.CloseWith].
func (l *LeaderLatch) Close() error { return l.CloseWith(l.mode) }

// CloseWith leaves the election. If the latch leads, its term's context ends first, then
// the listeners return, then the znode goes, so that no successor begins while the work
// of this leader still runs. It returns nil once the znode is gone. After the grace of
// [WithStepDownGrace] it returns an error while a listener is still running: the znode
// stays until that returns. Any other error says that the znode could not be deleted
// within the operation timeout; that goes on in the background.
//
// Called from inside a callback, of whatever recipe, CloseWith asks for all that and returns
// nil at once. A goroutine that a callback has started is not inside it: if the callback
// waits for that to close the latch, both wait for the grace. CloseWith is idempotent, and
// waits again when called again.
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
	if err := l.candidate.Wait(l.grace); err != nil {
		return &recipes.OpError{Op: "latch: close", Path: l.path, Err: err}
	}
	return nil
}
