package queue

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// maxRefusedPause is the longest pause after a refusal, unless the retry policy has a longer one.
// It is long because a refusal lasts until somebody changes a permission or a quota, and each
// attempt until then is a write that the quorum agrees to refuse.
const maxRefusedPause = 30 * time.Second

// AwaitTerm joins at the tail and blocks until the candidate leads. It fails when ctx ends, which
// must end with the session, and when the sequence numbers have run out.
//
// After a refusal the candidate leaves the queue until the next attempt, because a candidate that
// can't lead would keep the others from leading.
func (c *Candidate) AwaitTerm(ctx context.Context) (*session.Entry, error) {
	return c.repeatUntilTerm(ctx, func(ctx context.Context) (*session.Entry, error) {
		return c.queue.joinAndWait(ctx, true, nil)
	})
}

// AwaitTermAfter is Vacate and AwaitTerm, but for a term that a suspended connection has ended: that
// one keeps its znode, and the next term begins on it if it still exists.
func (c *Candidate) AwaitTermAfter(ctx context.Context, ended *session.Entry) (*session.Entry, error) {
	if !errors.Is(context.Cause(ended.Context()), zkutil.ErrSuspended) { //nolint:contextcheck // a term has a context of its own
		c.Vacate(ended)
		return c.AwaitTerm(ctx)
	}
	isFirst := true
	return c.repeatUntilTerm(ctx, func(ctx context.Context) (*session.Entry, error) {
		if !isFirst {
			return c.queue.joinAndWait(ctx, true, nil)
		}
		isFirst = false
		return c.queue.waitAgain(ctx, ended.Path())
	})
}

// waitAgain waits for the turn of a znode that the session has had before. First it proves the
// session, however long that takes. Otherwise the term could be granted on an older proof, and end
// as lost with that before the next suspension is noticed. The attempts of the retry policy are not
// counted here, because they are for later failures.
func (q *Queue) waitAgain(ctx context.Context, path string) (*session.Entry, error) {
	s, w := q.Session, q.newWaiter(path)
	_, err := zkutil.RepeatWhile(ctx, s.Config().Retry.Patient(), zkutil.IsTransient, func() (struct{}, error) {
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
	return w.awaitHold(ctx, true)
}

// repeatUntilTerm repeats attempt until it succeeds: at the pace of the retry policy after failures
// that may pass, and at a slower one after refusals.
func (c *Candidate) repeatUntilTerm(ctx context.Context, attempt func(context.Context) (*session.Entry, error)) (*session.Entry, error) {
	s := c.queue.Session
	attemptCtx := session.WithLeftovers(ctx, &c.leftovers)
	policy := s.Config().Retry.Patient()
	slowPolicy := policy
	slowPolicy.MaxInterval = max(policy.MaxInterval, maxRefusedPause)
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
	term, err := zkutil.RepeatWhile(attemptCtx, slowPolicy, isRefused, func() (*session.Entry, error) {
		release := s.Retain() // not during the pauses after refusals
		term, err := zkutil.RepeatWhile(attemptCtx, policy, mayPass, func() (*session.Entry, error) { return attempt(attemptCtx) })
		release()
		return term, err
	})
	if err == nil {
		c.recordRefusal(nil)
	}
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
