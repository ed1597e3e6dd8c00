package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Candidate takes part in an election. Its campaign lasts from Start to Stop, and has one term of leadership after the other,
// each a hold of a queue with KeepNode. Latch and selector share the Candidate, which continues its campaign without a server,
// and steps down in the right order.
type Candidate struct {
	queue        *queue.Queue
	onRefused    func(error)    // see NewCandidate
	campaignDone chan struct{}  // closed when the campaign runs no function of the user any more
	leftovers    leftovers.List // the deletions of the campaign's znodes
	scope        zkutil.Scope   // of the user's functions

	mu       sync.Mutex              // protects the fields below
	ctx      context.Context         // of the campaign; ends with the session. Nil before Start
	within   context.Context         // at the end of which ctx ends, a moment later
	stop     context.CancelCauseFunc // ends ctx
	isClosed bool
	changes  zkutil.Changes          // of path
	yielding context.CancelCauseFunc // ends the attempt to lead; nil: there is none, or the candidate is not steered
	path     string                  // of the present znode; "" if the candidate has no znode
	term     *session.Entry          // the latest term; nil: none yet
	refusal  error                   // the latest error for onRefused; nil once the candidate waits in the queue or leads
	position int                     // of the latest znode; 0: it led, or the queue was not read
	holder   *queue.Participant      // the first of the queue; nil unless position is 2
}

// NewCandidate returns a candidate in a queue with KeepNode, which no other candidate may use. The candidate calls onRefused
// when the server refuses the candidate, and when the candidate waits for a znode that is not ephemeral: once for all such
// errors with the same text in a row. onRefused must not block. The candidate continues.
func NewCandidate(q *queue.Queue, onRefused func(err error)) *Candidate {
	c := &Candidate{queue: q, onRefused: onRefused, campaignDone: make(chan struct{}), scope: zkutil.NewScope()}
	q.OnJoined = c.setPath
	onWaiting := q.OnWaiting
	q.OnWaiting = func(position int, predecessor queue.Participant, lasting error) {
		c.setPosition(position, predecessor)
		if c.recordRefusal(lasting) && lasting != nil {
			c.onRefused(lasting)
		}
		if onWaiting != nil {
			onWaiting(position, predecessor, lasting)
		}
	}
	return c
}

// recordRefusal reports whether a refusal differs from the previous refusal. A nil err means the end of the refusals.
func (c *Candidate) recordRefusal(err error) (isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isNew = !queue.IsSameFailure(err, c.refusal)
	c.refusal = err
	return isNew
}

// Start runs campaign in a goroutine of the session. campaign has to return soon after the end of its context. campaign may
// wait for functions of the user. Until these return, the session lives, and so does the leader's znode.
func (c *Candidate) Start(campaign func(ctx context.Context)) error {
	parent := c.queue.Session.Context()
	return c.startCampaign(parent, parent, campaign)
}

// PrepareWithin prepares Start with a campaign whose context also has the values of ctx, and ends with the cause of ctx at the end of
// ctx. If start fails, the caller has to call abandon. ctx is code of the user: so start may be called under a lock, and neither
// PrepareWithin nor abandon.
func (c *Candidate) PrepareWithin(ctx context.Context, campaign func(ctx context.Context)) (start func() error, abandon func()) {
	both, stop := context.WithCancelCause(withValues{c.queue.Session.Context(), ctx})
	if ctx.Err() != nil { // before the campaign sends anything
		stop(zkutil.CauseOf(ctx))
	}
	within, release := context.WithCancel(ctx)
	unbind := context.AfterFunc(within, func() { stop(zkutil.CauseOf(ctx)) })
	end := func() {
		unbind()
		release()
		stop(nil)
	}
	return func() error {
		return c.startCampaign(both, within, func(own context.Context) {
			defer end()
			campaign(own)
		})
	}, end
}

func (c *Candidate) startCampaign(parent, within context.Context, campaign func(ctx context.Context)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closedErrorLocked(); err != nil {
		return err
	}
	if c.ctx != nil {
		return zkutil.ErrAlreadyStarted
	}
	own, stop := context.WithCancelCause(parent)
	if !c.queue.Session.RunCampaign(c.queue.Recipe+" "+c.queue.Path, func() {
		defer stop(nil)
		endSteering := c.beginSteering(own)
		campaign(own)
		endSteering()
		close(c.campaignDone)
	}) {
		stop(nil)
		return errClientClosed
	}
	c.ctx, c.within, c.stop = own, within, stop
	return nil
}

// withValues is a context that also has the values of another context.
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
	if path != "" {
		c.position, c.holder = 0, nil
	}
	c.changes.AnnounceLocked()
}

func (c *Candidate) setPosition(position int, predecessor queue.Participant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.position, c.holder = position, nil
	if position == 2 {
		holder := predecessor // a copy, so that the other candidates allocate nothing
		c.holder = &holder
	}
}

// NotAcquired returns the error of a wait for a term, which began at startedAt and ended with err.
func (c *Candidate) NotAcquired(err error, startedAt time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	status := queue.WaitStatus{Position: c.position}
	if c.holder != nil {
		status.Holder = *c.holder
	}
	return &queue.InterruptedError{WaitStatus: status, Waited: time.Since(startedAt), Err: err}
}

// beginSteering begins to steer, if the candidate has a priority. end waits until the steering ends.
func (c *Candidate) beginSteering(ctx context.Context) (end func()) {
	if !c.isSteered() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with the campaign; joined in end
		defer close(done)
		c.runSteering(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// isSteered reports whether the candidate has a priority.
func (c *Candidate) isSteered() bool { return c.queue.IsSteered }

// pathAndChange returns the path of the present znode, and a channel that is closed when the path changes.
func (c *Candidate) pathAndChange() (path string, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.path, c.changes.ChangedLocked()
}

// termAt returns the term on the znode at path, nil if the candidate does not lead there.
func (c *Candidate) termAt(path string) *session.Entry {
	c.mu.Lock()
	term := c.term
	c.mu.Unlock()
	if term == nil || term.Path() != path {
		return nil
	}
	return term
}

// endAttempt ends the present attempt to lead, so that the candidate joins again at the tail.
func (c *Candidate) endAttempt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.yielding != nil {
		c.yielding(errYield)
	}
}

// Path returns the path of the znode with which the candidate waits or leads, and "" while the candidate has no znode. The
// znode of a term may be deleted while the leader's work continues.
func (c *Candidate) Path() string {
	c.mu.Lock()
	path, term := c.path, c.term
	c.mu.Unlock()
	if term != nil && term.Path() == path && term.IsGone() {
		return ""
	}
	return path
}

// LogLeft logs that the candidate left the election.
func (c *Candidate) LogLeft(cause error) {
	if errors.Is(cause, zkutil.ErrShut) {
		cause = zkutil.ErrClosed
	}
	c.queue.Session.Log(slog.LevelInfo, "left the election", "path", c.queue.Path, "id", c.queue.ID(), "cause", cause)
}

// CheckRunning returns nil from Start to Stop. Before Start the error is ErrNotStarted. After Stop or the end of the session
// the error is ErrClosed, with a text that distinguishes the two cases.
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

// IsUnderWay reports whether the campaign was started, and neither its context nor the one given to PrepareWithin is
// over.
func (c *Candidate) IsUnderWay() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx != nil && c.ctx.Err() == nil && c.within.Err() == nil
}

// errClientClosed is the ErrClosed of a candidate whose client was closed, not the candidate itself.
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

// Vacate starts the deletion of the znode of an ended term. Until then no other candidate can lead, unless the session is
// over.
func (c *Candidate) Vacate(term *session.Entry) {
	c.setPath("")
	c.leftovers.Add(term.Vacate())
}

// WithCampaign derives a context from ctx that also ends with the campaign. Call it after Start.
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

// Wait blocks until a stopped campaign ends. It waits at most grace for the user's functions, then at most an operation timeout
// for the deletion of the last znode. The error names the part that is unfinished. Inside a function of the user that this
// candidate runs, Wait returns immediately, because Wait would wait for its own caller.
func (c *Candidate) Wait(grace time.Duration) error {
	c.mu.Lock()
	isStarted := c.ctx != nil
	c.mu.Unlock()
	if !isStarted {
		return nil
	}
	runtime.Gosched() // yield to the campaign, because looking through the stack takes a tenth of a millisecond
	if c.scope.IsOnStack() {
		return nil
	}
	if !zkutil.Within(c.campaignDone, grace) {
		return fmt.Errorf("%w after %v; its znode stays until it returns", zkutil.ErrStepDownGrace, grace)
	}
	return c.queue.Session.AwaitLeftovers(&c.leftovers)
}
