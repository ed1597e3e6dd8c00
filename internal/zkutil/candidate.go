package zkutil

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Candidate stands for leadership: for one term after the other, each a hold of a
// queue that keeps its znodes. It is what latch and selector have in common: a campaign
// that never gives up for lack of a server, and an end in the right order.
type Candidate struct {
	queue     *Queue
	onRefused func(error)   // see NewCandidate
	quiet     chan struct{} // closed when the campaign runs no function of the user any more
	leftovers leftovers
	scope     scope // of the user's functions

	mu     sync.Mutex              // protects what is below
	ctx    context.Context         // of the campaign; ends with the session. Nil before Start
	stop   context.CancelCauseFunc // ends ctx
	closed bool
	path   string // of the present znode, "" if there is none

	refusal error // the latest one, nil once it waits in the queue or leads
}

// NewCandidate returns a candidate in a queue, which must keep its holds' znodes. onRefused is
// called when the server refuses the candidate, each time with another error than the time
// before, and Stand then goes on. It must not block.
func NewCandidate(q *Queue, onRefused func(err error)) *Candidate {
	c := &Candidate{queue: q, onRefused: onRefused, quiet: make(chan struct{}), scope: newScope()}
	q.OnJoined = c.setPath
	behind := q.Behind
	q.Behind = func() {
		c.noteRefusal(nil)
		if behind != nil {
			behind()
		}
	}
	return c
}

// noteRefusal reports whether a refusal is another one than the latest. nil means that there
// is none any more.
func (c *Candidate) noteRefusal(err error) (isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isNew = !isSameFailure(err, c.refusal)
	c.refusal = err
	return isNew
}

// Start runs the campaign in a goroutine of the session. It has to end soon after its
// context, but for the functions of the user that it waits for: the session lives, and
// with it the leader's znode, until they have returned.
func (c *Candidate) Start(campaign func(ctx context.Context)) error {
	return c.start(c.queue.Session.open, campaign)
}

// StartWithin is Start with a campaign whose context has the values of ctx, too, and ends with
// the cause of ctx when that ends.
//
//nolint:contextcheck // the campaign ends with the session; its context is made of both
func (c *Candidate) StartWithin(ctx context.Context, campaign func(ctx context.Context)) error {
	both, stop := context.WithCancelCause(withValues{c.queue.Session.open, ctx})
	if ctx.Err() != nil { // before the campaign sends anything
		stop(context.Cause(ctx))
	}
	unbind := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
	end := func() {
		unbind()
		stop(nil)
	}
	err := c.start(both, func(own context.Context) {
		defer end()
		campaign(own)
	})
	if err != nil {
		end()
	}
	return err
}

func (c *Candidate) start(parent context.Context, campaign func(ctx context.Context)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closedLocked(); err != nil {
		return err
	}
	if c.ctx != nil {
		return ErrAlreadyStarted
	}
	own, stop := context.WithCancelCause(parent)
	if !c.queue.Session.campaigns.run(func() {
		defer stop(nil)
		campaign(own)
		close(c.quiet)
	}) {
		stop(nil)
		return errClientClosed
	}
	c.ctx, c.stop = own, stop
	return nil
}

// withValues is a context that also has the values of another one.
type withValues struct {
	context.Context //nolint:containedctx // a context made of two

	values context.Context //nolint:containedctx // as above
}

func (c withValues) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.values.Value(key)
}

// setPath is called with the path of each znode of the campaign, and with "" when it is given up.
func (c *Candidate) setPath(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.path = path
}

// Path is the path of the znode with which the candidate waits or leads, "" while it has
// none.
func (c *Candidate) Path() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.path
}

// Running returns ErrClosed after Stop or the end of the session, with a text that says which of
// them was closed, and ErrNotStarted before Start.
func (c *Candidate) Running() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closedLocked(); err != nil {
		return err
	}
	if c.ctx == nil {
		return ErrNotStarted
	}
	return nil
}

// errClientClosed is ErrClosed where a latch or selector could have been closed as well.
var errClientClosed = fmt.Errorf("the client is %w", ErrClosed)

// closedLocked returns ErrClosed, and of what, after Stop or the end of the session.
func (c *Candidate) closedLocked() error {
	switch {
	case c.closed:
		return fmt.Errorf("the %s is %w", c.queue.Recipe, ErrClosed)
	case c.queue.Session.open.Err() != nil:
		return errClientClosed
	default:
		return nil
	}
}

// Vacate begins to delete the znode of a term that has ended. Until then nobody else
// can lead, unless the session is over.
func (c *Candidate) Vacate(term *Entry) {
	c.setPath("")
	c.leftovers.add(term.vacate().done)
}

// While derives a context that ends with the campaign's, too. It is for a candidate that
// was started.
func (c *Candidate) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Stop asks the campaign to end.
func (c *Candidate) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.stop != nil {
		c.stop(ErrReleased)
	}
}

// Wait waits until a campaign that was stopped has ended: for the user's functions for
// at most grace, then for the last znode to go, which takes an operation timeout at
// most. The error says what still goes on. Inside a function of the user that this candidate
// runs it does not wait: it would wait for its caller.
func (c *Candidate) Wait(grace time.Duration) error {
	c.mu.Lock()
	started := c.ctx != nil
	c.mu.Unlock()
	if !started || c.scope.isOnStack() {
		return nil
	}
	if !within(c.quiet, grace) {
		return fmt.Errorf("%w after %v; its znode stays until it returns", ErrStepDownGrace, grace)
	}
	return c.settle()
}

// settle waits until everything is gone that terms and ended attempts have left in
// ZooKeeper. The error says that it goes on.
func (c *Candidate) settle() error {
	s := c.queue.Session
	limit := time.NewTimer(s.cfg.OperationTimeout)
	defer limit.Stop()
	for _, done := range c.leftovers.all() {
		select {
		case <-done:
		case <-s.done:
			return nil // they go with the session
		case <-limit.C:
			return notDeleted(s.cfg.OperationTimeout, s.unavailable())
		}
	}
	return nil
}
