package schedule

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// permits has the methods of a semaphore used by schedules besides Lock.
type permits interface {
	AcquireN(ctx context.Context, n int) ([]*recipes.Lease, error)
	TryAcquireN(ctx context.Context, n int) ([]*recipes.Lease, error)
}

// acquire acquires the lock of a step, or its permits.
func (c *contender) acquire(ctx context.Context, s step) ([]*recipes.Lease, error) {
	lock := c.locks[s.lock]
	if s.n > 1 {
		return c.acquireAll(ctx, s.n, lock.(permits).AcquireN)
	}
	return asList(lock.Acquire(ctx))
}

// tryAcquire is acquire without waiting for others.
func (c *contender) tryAcquire(ctx context.Context, s step) ([]*recipes.Lease, error) {
	lock := c.locks[s.lock]
	if s.n > 1 {
		return c.acquireAll(ctx, s.n, lock.(permits).TryAcquireN)
	}
	return asList(lock.TryAcquire(ctx))
}

func asList(lease *recipes.Lease, err error) ([]*recipes.Lease, error) {
	if err != nil {
		return nil, err
	}
	return []*recipes.Lease{lease}, nil
}

// acquireAll checks that an acquisition returns all of its permits, or none.
func (c *contender) acquireAll(ctx context.Context, n int, acquire func(context.Context, int) ([]*recipes.Lease, error)) ([]*recipes.Lease, error) {
	leases, err := acquire(ctx, n)
	if err == nil && len(leases) != n || err != nil && len(leases) > 0 {
		c.referee.reportFault("%s: %d permits in place of %d: %v", c, len(leases), n, err)
	}
	return leases, err
}

// useAll holds several permits as the step says, and releases each in turn.
func (c *contender) useAll(leases []*recipes.Lease, s step) {
	held := make([]*heldLease, len(leases))
	for i, lease := range leases {
		held[i] = c.referee.granted(c, s.lock, lease, nil)
	}
	for _, t := range held {
		c.hold(t, s.hold/time.Duration(len(held)))
		c.release(t, true)
	}
}
