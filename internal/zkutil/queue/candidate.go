package queue

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Candidate takes part in an election, from Start to Stop: its campaign. It has one term of
// leadership after the other, each a hold of a queue with KeepNode. Latch and selector have it in
// common: a campaign that no missing server ends, and a step-down in the right order.
type Candidate struct {
	queue        *Queue
	onRefused    func(error)       // see NewCandidate
	campaignDone chan struct{}     // closed when the campaign runs no function of the user any more
	leftovers    session.Leftovers // the deletions of the campaign's znodes
	scope        zkutil.Scope      // of the user's functions

	mu       sync.Mutex              // protects what is below
	ctx      context.Context         // of the campaign; ends with the session. Nil before Start
	stop     context.CancelCauseFunc // ends ctx
	isClosed bool
	path     string // of the present znode, "" if there is none
	refusal  error  // the latest one; nil once the candidate waits in the queue or leads
}

// NewCandidate returns a candidate in a queue with KeepNode, which no other candidate may use.
// onRefused is called when the server refuses the candidate, once for all refusals with the same
// text in a row. It must not block. The candidate goes on.
func NewCandidate(q *Queue, onRefused func(err error)) *Candidate {
	c := &Candidate{queue: q, onRefused: onRefused, campaignDone: make(chan struct{}), scope: zkutil.NewScope()}
	q.OnJoined = c.setPath
	onWaiting := q.OnWaiting
	q.OnWaiting = func() {
		c.recordRefusal(nil)
		if onWaiting != nil {
			onWaiting()
		}
	}
	return c
}

// recordRefusal reports whether a refusal differs from the one before. nil means that the refusals
// are over.
func (c *Candidate) recordRefusal(err error) (isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isNew = !isSameFailure(err, c.refusal)
	c.refusal = err
	return isNew
}

// Start runs campaign in a goroutine of the session. campaign has to return soon after the end of
// its context. It may wait for functions of the user: until they have returned the session lives,
// and with it the leader's znode.
func (c *Candidate) Start(campaign func(ctx context.Context)) error {
	return c.startCampaign(c.queue.Session.Context(), campaign)
}

// StartWithin is Start with a campaign whose context also has the values of ctx, and ends with the
// cause of ctx when that ends.
//
//nolint:contextcheck // the campaign ends with the session; its context is made of both
func (c *Candidate) StartWithin(ctx context.Context, campaign func(ctx context.Context)) error {
	both, stop := context.WithCancelCause(withValues{c.queue.Session.Context(), ctx})
	if ctx.Err() != nil { // before the campaign sends anything
		stop(context.Cause(ctx))
	}
	unbind := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
	end := func() {
		unbind()
		stop(nil)
	}
	err := c.startCampaign(both, func(own context.Context) {
		defer end()
		campaign(own)
	})
	if err != nil {
		end()
	}
	return err
}

func (c *Candidate) startCampaign(parent context.Context, campaign func(ctx context.Context)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closedErrorLocked(); err != nil {
		return err
	}
	if c.ctx != nil {
		return zkutil.ErrAlreadyStarted
	}
	own, stop := context.WithCancelCause(parent)
	if !c.queue.Session.RunCampaign(func() {
		defer stop(nil)
		campaign(own)
		close(c.campaignDone)
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

func (c *Candidate) setPath(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.path = path
}

// Path returns the path of the znode with which the candidate waits or leads, and "" while it has
// none.
func (c *Candidate) Path() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.path
}

// CheckRunning returns nil from Start to Stop. Before Start it returns ErrNotStarted. After Stop or
// the end of the session it returns ErrClosed, with a text that says which of the two it was.
func (c *Candidate) CheckRunning() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closedErrorLocked(); err != nil {
		return err
	}
	if c.ctx == nil {
		return zkutil.ErrNotStarted
	}
	return nil
}

// errClientClosed is the ErrClosed of a candidate whose client, and not itself, was closed.
var errClientClosed = fmt.Errorf("the client is %w", zkutil.ErrClosed)

func (c *Candidate) closedErrorLocked() error {
	switch {
	case c.isClosed:
		return fmt.Errorf("the %s is %w", c.queue.Recipe, zkutil.ErrClosed)
	case c.queue.Session.Context().Err() != nil:
		return errClientClosed
	default:
		return nil
	}
}

// Vacate begins to delete the znode of a term that has ended. Before that nobody else can lead,
// unless the session is over.
func (c *Candidate) Vacate(term *session.Entry) {
	c.setPath("")
	c.leftovers.Add(term.Vacate())
}

// WithCampaign derives a context from ctx that also ends with the campaign, which was started.
func (c *Candidate) WithCampaign(ctx context.Context) (context.Context, context.CancelFunc) {
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
	c.isClosed = true
	if c.stop != nil {
		c.stop(zkutil.ErrReleased)
	}
}

// Wait blocks until a stopped campaign has ended: for at most grace until the user's functions have
// returned, then for at most an operation timeout until the last znode is gone. The error says what
// still goes on. Inside a function of the user that this candidate runs, Wait returns at once,
// because it would wait for its caller.
func (c *Candidate) Wait(grace time.Duration) error {
	c.mu.Lock()
	isStarted := c.ctx != nil
	c.mu.Unlock()
	if !isStarted {
		return nil
	}
	runtime.Gosched() // the campaign goes first, because looking through the stack takes a tenth of a millisecond
	if c.scope.IsOnStack() {
		return nil
	}
	if !zkutil.Within(c.campaignDone, grace) {
		return fmt.Errorf("%w after %v; its znode stays until it returns", zkutil.ErrStepDownGrace, grace)
	}
	return c.leftovers.Await(c.queue.Session)
}
