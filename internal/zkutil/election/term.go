package election

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
)

// AwaitTerm joins at the tail and blocks until the candidate leads. AwaitTerm fails when ctx ends, which must end with the session, and
// when the sequence numbers have run out.
//
// After a refusal the candidate leaves the queue until the next attempt, because a candidate that can't lead would keep the others from
// leading.
func (c *Candidate) AwaitTerm(ctx context.Context) (*session.Entry, error) {
	return c.repeatUntilTerm(ctx, c.joinQueue)
}

// AwaitTermAfter is Vacate and AwaitTerm, except after a term that was ended by a suspended connection. Such a term keeps its
// znode, and the next term begins on the same znode if the znode still exists.
func (c *Candidate) AwaitTermAfter(ctx context.Context, ended *session.Entry) (*session.Entry, error) {
	if !errors.Is(context.Cause(ended.Context()), zkutil.ErrSuspended) { //nolint:contextcheck // a term has a context of its own
		c.Vacate(ended)
		return c.AwaitTerm(ctx)
	}
	isFirst := true
	return c.repeatUntilTerm(ctx, func(ctx context.Context, status *queue.WaitStatus) (*session.Entry, error) {
		if !isFirst {
			return c.joinQueue(ctx, status)
		}
		isFirst = false
		return c.queue.Resume(ctx, ended.Path(), status)
	})
}

// joinQueue makes a single attempt to lead, with a new znode.
func (c *Candidate) joinQueue(ctx context.Context, status *queue.WaitStatus) (*session.Entry, error) {
	q := c.queue
	reservation, err := q.Reserve(ctx, q.ZnodeBytes(), true)
	if err != nil {
		return nil, err
	}
	defer reservation.End()
	return q.JoinAndWait(ctx, reservation, true, status)
}

// attemptFunc makes a single attempt to lead, and keeps status up to date meanwhile, unless status is nil.
type attemptFunc func(ctx context.Context, status *queue.WaitStatus) (*session.Entry, error)

// steered returns attempt for a candidate that may have to yield while it waits: then the attempt begins again, at the tail.
func (c *Candidate) steered(attempt attemptFunc) attemptFunc {
	return func(ctx context.Context, status *queue.WaitStatus) (*session.Entry, error) {
		for {
			own, cancel := context.WithCancelCause(ctx)
			c.setYielding(cancel)
			term, err := attempt(own, status)
			c.setYielding(nil)
			isYielding := errors.Is(context.Cause(own), errYield)
			cancel(nil)
			if err == nil || !isYielding || ctx.Err() != nil {
				return term, err
			}
		}
	}
}

func (c *Candidate) setYielding(cancel context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.yielding = cancel
}

// repeatUntilTerm repeats attempt until an attempt succeeds: at the pace of the retry policy after failures that may pass, and at a slower
// pace after refusals. The traces show all attempts as a single acquisition.
func (c *Candidate) repeatUntilTerm(ctx context.Context, attempt attemptFunc) (*session.Entry, error) {
	if c.isSteered() {
		attempt = c.steered(attempt)
	}
	s := c.queue.Session
	attemptCtx := leftovers.With(ctx, &c.leftovers)
	acquisition, status := c.beginAcquisition(ctx)
	policy := s.Config().Retry.Patient()
	mayPass := func(err error) bool {
		return !zkutil.IsRefused(err) && (zkutil.IsTransient(err) || errors.Is(err, zkutil.ErrContenderLost))
	}
	isRefused := func(err error) bool {
		if zkutil.IsAny(err, zkutil.ErrClosed, zkutil.ErrSequenceExhausted) || ctx.Err() != nil {
			return false
		}
		if c.recordRefusal(err) {
			c.onRefused(err)
		}
		return true
	}
	term, err := zkutil.RepeatWhile(attemptCtx, policy.AfterRefusals(), isRefused, func() (*session.Entry, error) {
		s.Retain() // not during the pauses after refusals
		defer s.Release()
		return zkutil.RepeatWhile(attemptCtx, policy, mayPass, func() (*session.Entry, error) { return attempt(attemptCtx, status) })
	})
	if errors.Is(err, zkutil.ErrClosed) {
		<-ctx.Done() // ends right after Close; after the wait the caller sees a cancellation, not a refusal
	}
	if err == nil {
		c.recordRefusal(nil)
		c.mu.Lock()
		c.term, c.position, c.holder = term, 0, nil
		c.mu.Unlock()
	}
	endAcquisition(acquisition, status, term, err)
	return term, err
}

// beginAcquisition begins an acquisition for the traces. Both results are nil without traces, and after the campaign, which only cleans
// up by then.
func (c *Candidate) beginAcquisition(ctx context.Context) (*trace.Acquisition, *queue.WaitStatus) {
	if ctx.Err() != nil {
		return nil, nil
	}
	if a := c.queue.BeginAcquisition(ctx, false, c.scope); a != nil {
		return a, &queue.WaitStatus{}
	}
	return nil, nil
}

func endAcquisition(a *trace.Acquisition, status *queue.WaitStatus, term *session.Entry, err error) {
	switch {
	case a == nil:
		return
	case err != nil:
		a.SetAhead(status.Ahead)
		a.Fail(err)
	default:
		a.SetAhead(status.Ahead)
		session.Succeed(a, false, term)
	}
}
