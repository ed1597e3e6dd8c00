package cohort

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

func (c *Cohort) tryAcquire(ctx context.Context, a *session.Acquisition) (*session.Entry, error) {
	startedAt := time.Now()
	for {
		if ctx.Err() != nil {
			return nil, queue.Interrupted(ctx, zkutil.EndOf(ctx), queue.WaitStatus{}, startedAt)
		}
		if c.Queue.Session.Context().Err() != nil { // a caller inside may not know of the end yet
			return nil, zkutil.ErrClosed
		}
		entry, over, err := c.shared.tryInside(ctx, c.maxHold)
		if entry != nil || err != nil {
			return entry, err
		}
		if over != nil {
			c.shared.endWithin(ctx, over)
		}
		whole, err := c.Queue.AcquireTraced(ctx, false, a)
		if entry, isLost := c.shared.endTry(ctx, c, whole); entry != nil || !isLost {
			return entry, err
		}
	}
}

// tryInside decides a TryAcquire without a request, if possible: with a part of the tenure, or with ErrNotAcquired. Otherwise the caller has
// to end the tenure that is over, if tryInside returns such a tenure, to ask the queue, and to call endTry.
func (c *cohort) tryInside(ctx context.Context, maxHold time.Duration) (entry *session.Entry, over *tenure, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenure
	isLost := t != nil && t.base.Context().Err() != nil
	isTaken := c.isTrying || c.candidacy != nil || c.waiters.Len() > 0 || t != nil && !isLost && t.isHeld
	if isTaken {
		return nil, nil, zkutil.ErrNotAcquired
	}
	if t != nil && !isLost {
		if t.next(time.Now(), true) == passOn {
			if entry = t.passLocked(ctx, maxHold); entry != nil {
				c.arrived++
				c.lastServed = c.arrived
				return entry, nil, nil
			}
		}
		over = t
	}
	c.tenure, c.isTrying = nil, true
	return nil, over, nil
}

// endTry records the outcome of a TryAcquire that has asked the queue: whole is nil after a failure. After a success, the caller of TryAcquire
// gets the first part of a tenure; isLost reports that the tenure was lost before.
func (c *cohort) endTry(ctx context.Context, caller *Cohort, whole *session.Entry) (entry *session.Entry, isLost bool) {
	c.mu.Lock()
	c.isTrying = false
	if whole != nil {
		c.tenure = newTenure(c, caller.Queue, whole)
		entry = c.tenure.passLocked(ctx, caller.maxHold)
		c.arrived++
		c.lastServed = c.arrived
	}
	over := c.advanceLocked()
	c.mu.Unlock()
	_ = over.end() // a failure is logged, and the deletion goes on
	return entry, whole != nil && entry == nil
}

// endWithin ends a tenure, and waits until its znode is gone, for as long as ctx lasts: otherwise the znode would be ahead of the next znode
// of the cohort.
func (c *cohort) endWithin(ctx context.Context, t *tenure) {
	done := make(chan struct{})
	if !c.s.Background(func(context.Context) {
		defer close(done)
		_ = t.end() // a failure is logged, and the deletion goes on
	}) {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}
