package zkutil

import (
	"context"
	"errors"
	"regexp"
	"time"
)

// longestRefusal is the longest pause after a refusal, unless the retry policy has a longer
// one. A refusal lasts until somebody changes a permission or a quota, and each attempt in
// between is a write that the quorum agrees to refuse.
const longestRefusal = 30 * time.Second

// Stand waits for a term. It fails when ctx, which has to end with the session, does, and when
// the sequence numbers have run out.
//
// A refused attempt leaves the queue until the next one: a candidate that can't lead would
// otherwise be in the way of those who can.
func (c *Candidate) Stand(ctx context.Context) (*Entry, error) {
	return c.stand(ctx, func(ctx context.Context) (*Entry, error) { return c.queue.attempt(ctx, true) })
}

// Resume is Stand after a term that has ended, in place of Vacate. Where the connection was
// suspended, it waits for the next term on the same znode for as long as that exists.
func (c *Candidate) Resume(ctx context.Context, ended *Entry) (*Entry, error) {
	if !errors.Is(context.Cause(ended.Context()), ErrSuspended) { //nolint:contextcheck // a term has a context of its own
		c.Vacate(ended)
		return c.Stand(ctx)
	}
	first := true
	return c.stand(ctx, func(ctx context.Context) (*Entry, error) {
		if !first {
			return c.queue.attempt(ctx, true)
		}
		first = false
		return c.queue.resume(ctx, ended.Path())
	})
}

// resume waits for the turn of a znode that the session has had before. It first proves the
// session anew, however long that takes: a term granted on the trust of the one before might end
// with that, as lost, before the next suspension is noticed. And the attempts of the retry policy
// are for later failures.
func (q *Queue) resume(ctx context.Context, path string) (*Entry, error) {
	s, p := q.Session, q.placeOf(path)
	_, err := retry(ctx, s.cfg.Retry.patient(), transient, func() (struct{}, error) {
		if err := s.await(ctx, func() bool { return s.connected }); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, p.prove(ctx)
	})
	if err != nil {
		q.joined("")
		p.withdraw(ctx, err)
		return nil, err
	}
	return p.stand(ctx, true)
}

// stand repeats attempt until it succeeds: at the pace of the retry policy after failures that
// pass, and at a slower one after refusals.
func (c *Candidate) stand(ctx context.Context, attempt func(context.Context) (*Entry, error)) (*Entry, error) {
	s := c.queue.Session
	patient := context.WithValue(ctx, leftoversKey{}, &c.leftovers)
	policy := s.cfg.Retry.patient()
	slow := policy
	slow.MaxInterval = max(policy.MaxInterval, longestRefusal)
	passing := func(err error) bool { return !refused(err) && (transient(err) || errors.Is(err, errPlaceLost)) }
	allowed := func(err error) bool {
		if !refused(err) || ctx.Err() != nil {
			return false
		}
		if c.noteRefusal(err) {
			c.onRefused(err)
		}
		return true
	}
	term, err := retry(patient, slow, allowed, func() (*Entry, error) {
		done := s.attended()
		term, err := retry(patient, policy, passing, func() (*Entry, error) { return attempt(patient) })
		done()
		return term, err
	})
	if err == nil {
		c.noteRefusal(nil)
	}
	if errors.Is(err, ErrClosed) {
		<-ctx.Done() // right after Close; the caller has to see the end of its context, not a refusal
	}
	return term, err
}

// protectedName matches the names of our znodes.
var protectedName = regexp.MustCompile(protection + `[0-9a-f-]{36}-[a-z_-]*-?[0-9]{10}`)

// isSameFailure reports whether two errors say the same, whichever of our znodes they name:
// each attempt has one of its own.
func isSameFailure(a, b error) bool {
	anonymous := func(err error) string { return protectedName.ReplaceAllString(err.Error(), protection) }
	return a != nil && b != nil && anonymous(a) == anonymous(b)
}
