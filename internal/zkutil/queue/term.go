package queue

import (
	"context"
	"errors"
	"regexp"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// AwaitTerm joins at the tail and blocks until the candidate leads. It fails when ctx ends, which
// must end with the session, and when the sequence numbers have run out.
//
// After a refusal the candidate leaves the queue until the next attempt, because a candidate that
// can't lead would keep the others from leading.
func (c *Candidate) AwaitTerm(ctx context.Context) (*session.Entry, error) {
	return c.repeatUntilTerm(ctx, c.queue.joinInPlace)
}

// AwaitTermAfter is Vacate and AwaitTerm, but for a term that a suspended connection has ended: that
// one keeps its znode, and the next term begins on it if it still exists.
func (c *Candidate) AwaitTermAfter(ctx context.Context, ended *session.Entry) (*session.Entry, error) {
	if !errors.Is(context.Cause(ended.Context()), zkutil.ErrSuspended) { //nolint:contextcheck // a term has a context of its own
		c.Vacate(ended)
		return c.AwaitTerm(ctx)
	}
	isFirst := true
	return c.repeatUntilTerm(ctx, func(ctx context.Context, status *WaitStatus) (*session.Entry, error) {
		if !isFirst {
			return c.queue.joinInPlace(ctx, status)
		}
		isFirst = false
		return c.queue.waitAgain(ctx, ended.Path(), status)
	})
}

// waitAgain waits for the turn of a znode that the session has had before. First it proves the
// session, however long that takes. Otherwise the term could be granted on an older proof, and end
// as lost with that before the next suspension is noticed. The attempts of the retry policy are not
// counted here, because they are for later failures.
func (q *Queue) waitAgain(ctx context.Context, path string, status *WaitStatus) (*session.Entry, error) {
	s, w := q.Session, &waiter{q: q, s: q.Session, mayWait: true, status: status}
	w.setPath(path)
	_, err := zkutil.RepeatWhile(ctx, s.Retry().Patient(), zkutil.IsTransient, func() (struct{}, error) {
		if err := s.AwaitConnected(ctx); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, s.Prove(ctx, path)
	})
	if err != nil {
		q.reportJoined("")
		w.leaveQueue(ctx, err)
		return nil, err
	}
	q.reportJoined(path)
	return w.awaitHold(ctx)
}

// attemptFunc makes one attempt to lead. It keeps the status up to date meanwhile, unless that is nil.
type attemptFunc func(ctx context.Context, status *WaitStatus) (*session.Entry, error)

// repeatUntilTerm repeats attempt until it succeeds. To the traces all that is one acquisition.
func (c *Candidate) repeatUntilTerm(ctx context.Context, attempt attemptFunc) (*session.Entry, error) {
	s := c.queue.Session
	attemptCtx := session.WithLeftovers(ctx, &c.leftovers)
	acquisition, status := c.beginAcquisition(ctx)
	s.Retain()
	term, err := attempt(attemptCtx, status)
	s.Release()
	if err != nil {
		term, err = c.repeatAfterFailure(ctx, attemptCtx, err, func(ctx context.Context) (*session.Entry, error) {
			return attempt(ctx, status)
		})
	}
	if err == nil {
		c.recordRefusal(nil)
	}
	endAcquisition(acquisition, status, term, err)
	return term, err
}

// beginAcquisition begins an acquisition for the traces. Both results are nil if there are no traces, and after
// the campaign, which only cleans up then.
func (c *Candidate) beginAcquisition(ctx context.Context) (*session.Acquisition, *WaitStatus) {
	if ctx.Err() != nil {
		return nil, nil
	}
	if a := c.queue.beginAcquisitionIn(ctx, false, c.scope); a != nil {
		return a, &WaitStatus{}
	}
	return nil, nil
}

func endAcquisition(a *session.Acquisition, status *WaitStatus, term *session.Entry, err error) {
	switch {
	case a == nil:
		return
	case err != nil:
		a.SetAhead(status.ahead)
		a.Fail(err)
	default:
		a.SetAhead(status.ahead)
		a.Succeed(false, term)
	}
}

// repeatAfterFailure is repeatUntilTerm after a first attempt that has failed: at the pace of the retry policy
// after failures that may pass, and at a slower one after refusals. It is a function of its own, because
// candidates that wait for hours in the first attempt then keep a small stack.
func (c *Candidate) repeatAfterFailure(
	ctx, attemptCtx context.Context, failure error, attempt func(context.Context) (*session.Entry, error),
) (*session.Entry, error) {
	s := c.queue.Session
	policy := s.Retry().Patient()
	mayPass := func(err error) bool {
		return !zkutil.IsRefused(err) && (zkutil.IsTransient(err) || errors.Is(err, zkutil.ErrContenderLost))
	}
	isRefused := func(err error) bool {
		if !zkutil.IsRefused(err) || ctx.Err() != nil {
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
		return zkutil.RepeatWhile(attemptCtx, policy, mayPass, func() (*session.Entry, error) {
			if latest := failure; latest != nil {
				failure = nil
				return nil, latest
			}
			return attempt(attemptCtx)
		})
	})
	if errors.Is(err, zkutil.ErrClosed) {
		<-ctx.Done() // ends right after Close; waiting for it lets the caller see a cancellation, not a refusal
	}
	return term, err
}

// protectedName matches the names of our znodes.
var protectedName = regexp.MustCompile(session.Protection + `[0-9a-f-]{36}-[a-z_-]*-?[0-9]{10}`)

// isSameFailure reports whether two errors have the same text but for the names of our znodes,
// because each attempt has a znode of its own.
func isSameFailure(a, b error) bool {
	anonymous := func(err error) string { return protectedName.ReplaceAllString(err.Error(), session.Protection) }
	return a != nil && b != nil && anonymous(a) == anonymous(b)
}
