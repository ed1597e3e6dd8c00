package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

const (
	operationTimeout = 10 * time.Second // the default
	tooLong          = time.Hour        // longer than anything in a schedule takes
)

// contender is one client of a schedule.
type contender struct {
	id      int
	plan    clientPlan
	servers []string
	client  *recipes.Client
	locks   []Lock
	referee *referee

	// guarded by referee.mu
	requests map[zktest.Op]int
	deletes  int
	troubled bool
	calmFrom time.Time // end of the latest trouble
	closing  bool
	gaveUp   bool // an acquisition ended while its create may still be executed, to be undone afterwards
}

func (c *contender) String() string { return fmt.Sprintf("client %d", c.id) }

// work performs a worker's steps, until the client is closed.
func (c *contender) work(ctx context.Context, steps []step) {
	for _, s := range steps {
		bubble.Pause(s.think)
		if c.isClosing() {
			return
		}
		c.do(ctx, s)
	}
}

func (c *contender) do(ctx context.Context, s step) {
	start := time.Now()
	limit := tooLong
	if s.limit > 0 {
		limit = s.limit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var leases []*recipes.Lease
	var err error
	switch s.kind {
	case do:
		err = c.locks[s.lock].Do(ctx, func(_ context.Context, lease *recipes.Lease) error {
			t := c.referee.granted(c, s.lock, lease, nil) //nolint:contextcheck // the referee goes by the lease's context
			c.hold(t, s.hold)
			c.referee.releasing(t)
			return nil
		})
	case revokeOther:
		err = c.revoke(ctx)
	case try:
		leases, err = c.try(ctx, s)
	default:
		leases, err = c.acquire(ctx, s)
	}
	switch {
	case err != nil:
		c.failed(s, err, time.Since(start))
	case len(leases) == 1:
		c.use(leases[0], s) //nolint:contextcheck // by the lease's context
	case len(leases) > 1:
		c.useAll(leases, s) //nolint:contextcheck // by the leases' contexts
	}
}

// try checks that a failed attempt leaves nothing behind, if nobody else uses the client and the attempt has waited for the
// deletion.
func (c *contender) try(ctx context.Context, s step) ([]*recipes.Lease, error) {
	owned := func() []string {
		session, _ := c.referee.srv.Session(c.client.Conn().SessionID())
		return session.Ephemerals
	}
	start, before := time.Now(), owned()
	leases, err := c.tryAcquire(ctx, s)
	waited := ctx.Err() == nil && time.Since(start) < operationTimeout && !c.isClosing() && !c.hasGivenUp()
	if errors.Is(err, recipes.ErrNotAcquired) && waited && len(c.plan.workers) == 1 {
		for _, znode := range owned() {
			if !slices.Contains(before, znode) {
				c.referee.reportFault("%s: tried in vain and left %v", c, znode)
			}
		}
	}
	return leases, err
}

// failed checks whether the plan can explain an error.
func (c *contender) failed(s step, err error, after time.Duration) {
	switch {
	case errors.Is(err, recipes.ErrClosed) && c.isClosing():
	case s.limit > 0 && errors.Is(err, context.DeadlineExceeded):
		c.giveUp()
		if after != s.limit && s.kind != do {
			c.referee.reportFault("%s: %v gave up after %v instead of %v", c, s.kind, after, s.limit)
		}
	case s.kind == try && errors.Is(err, recipes.ErrNotAcquired):
	case s.kind == do && errors.Is(err, recipes.ErrSessionLost) && !c.isQuiet(),
		s.kind == do && errors.Is(err, recipes.ErrNodeDeleted),
		s.kind == do && errors.Is(err, recipes.ErrSuspended) && c.plan.standard && !c.isQuiet():
	case s.kind == do && c.referee.recipe.MaxHold > 0 && errors.Is(err, recipes.ErrMaxHold):
	case s.kind == do && c.referee.recipe.MayFail != nil && c.referee.recipe.MayFail(err) && !c.isQuiet():
	case c.mayLoseAPart(err):
	case s.n > c.referee.recipe.Limit && errors.Is(err, recipes.ErrInvalidArgument) && after == 0:
	case c.plan.mayGiveUp() && !errors.Is(err, recipes.ErrClosed) && (!c.isQuiet() || errors.Is(err, recipes.ErrNodeDeleted)):
		// The policy allows no more attempts.
	case c.plan.mayGiveUp() && c.plan.isNarrow && errors.Is(err, recipes.ErrSessionFull):
		// A znode whose deletion is under way has the room. Waiting for it takes attempts: see budget.Reservation.Begin.
	default:
		c.referee.reportFault("%s: %v failed after %v: %v", c, s.kind, after, err)
	}
}

// mayLoseAPart reports whether an acquisition of several locks may fail with err, because a lock acquired earlier was lost.
func (c *contender) mayLoseAPart(err error) bool {
	if len(c.referee.recipe.Beside) == 0 {
		return false
	}
	isLoss := errors.Is(err, recipes.ErrSessionLost) || c.plan.standard && errors.Is(err, recipes.ErrSuspended)
	return errors.Is(err, recipes.ErrNodeDeleted) || isLoss && !c.isQuiet()
}

// use holds a lease as the step says, and releases the lease.
func (c *contender) use(lease *recipes.Lease, s step) {
	t := c.referee.granted(c, s.lock, lease, nil)
	if s.kind == downgrade {
		t = c.downgrade(t)
	}
	if (s.kind == reenter || s.kind == overlap) && c.referee.recipe.Limit == 0 {
		inner, err := c.locks[s.lock].Acquire(lease.Context())
		if err != nil {
			if cause := context.Cause(lease.Context()); cause == nil || !errors.Is(err, cause) {
				c.referee.reportFault("%s: re-entry failed: %v", c, err)
			}
		} else {
			second := c.referee.inherited(t, inner)
			if s.kind == overlap {
				t, second = second, t
			}
			c.release(second, false)
		}
	}
	c.hold(t, s.hold)
	c.release(t, true)
}

// downgrade acquires the shared lock under the exclusive lock, and releases the latter. If the acquisition fails, downgrade
// returns the exclusive lease.
func (c *contender) downgrade(writer *heldLease) *heldLease {
	lease, err := c.locks[shared].Acquire(writer.lease.Context())
	if err == nil {
		reader := c.referee.granted(c, shared, lease, writer)
		c.release(writer, true)
		return reader
	}
	cause := context.Cause(writer.lease.Context())
	isLost := cause != nil && errors.Is(err, cause)
	isFull := c.plan.isNarrow && errors.Is(err, recipes.ErrSessionFull)
	if !isLost && !isFull && !errors.Is(err, recipes.ErrNodeDeleted) && !c.isClosing() && (!c.plan.mayGiveUp() || c.isQuiet()) {
		c.referee.reportFault("%s: downgrade failed: %v", c, err)
	}
	return writer
}

// hold writes to the guarded resource at both ends of a hold.
func (c *contender) hold(t *heldLease, d time.Duration) {
	c.referee.write(t)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.lease.Revoked():
	case <-t.lease.Context().Done():
	}
	c.referee.write(t)
}

// release checks the promises of Release: it returns within the operation timeout, returns the cause of a lost lease's end, and
// a nil error means that the znode is gone. After the maximum time, it waits for the deletion, or for the end of the client.
func (c *contender) release(t *heldLease, last bool) {
	c.referee.releasing(t)
	start := time.Now()
	err := t.lease.Release()
	took, cause := time.Since(start), context.Cause(t.lease.Context())
	_, _, left := c.referee.srv.Get(t.lease.Path())
	switch {
	case cause == nil:
		c.referee.reportFault("%s: released, but the context has not ended", c)
	case took > operationTimeout:
		c.referee.reportFault("%s: release took %v", c, took)
	case err == nil && last && left && !c.referee.recipe.hasCohorts():
		c.referee.reportFault("%s: released, but the znode is there", c)
	case err == nil && !last && !left && t.isValid():
		c.referee.reportFault("%s: the inner release took the znode", c)
	case errors.Is(err, recipes.ErrNodeNotDeleted) && !c.isQuiet(): // also at once, if another wait has shown that nothing can be deleted
	case err != nil && errors.Is(cause, recipes.ErrReleased) && took < operationTimeout && !c.isClosing():
		c.referee.reportFault("%s: release failed after %v: %v", c, took, err)
	case errors.Is(cause, recipes.ErrMaxHold) && errors.Is(err, recipes.ErrClosed) && c.isClosing(): // before the deletion was confirmed
	case err != nil && !errors.Is(cause, recipes.ErrReleased) && !errors.Is(err, cause):
		c.referee.reportFault("%s: lost with %v, release says %v", c, cause, err)
	}
	if err := t.lease.Release(); !errors.Is(err, recipes.ErrNotHeld) {
		c.referee.reportFault("%s: second release: %v", c, err)
	}
	if last && c.referee.recipe.Limit == 0 {
		c.cantReenter(t, cause)
	}
}

// cantReenter checks that the context of an ended lease never gets a new lease.
func (c *contender) cantReenter(t *heldLease, cause error) {
	for _, ctx := range []context.Context{t.lease.Context(), context.WithoutCancel(t.lease.Context())} {
		if _, err := c.locks[t.lock].Acquire(ctx); !errors.Is(err, cause) {
			c.referee.reportFault("%s: acquired with the context of a lease that is over: %v", c, err)
		}
	}
}

// revoke asks the current holder to release the lock.
func (c *contender) revoke(ctx context.Context) error {
	queue, err := c.locks[exclusive].Participants(ctx)
	if err != nil || len(queue) == 0 {
		return err
	}
	err = revoke.New(c.client).AttemptRevoke(ctx, queue[0].Path)
	if err == nil {
		c.referee.asked(queue[0].Path)
	}
	return err
}

func (c *contender) giveUp() {
	c.referee.mu.Lock()
	defer c.referee.mu.Unlock()
	c.gaveUp = true
}

func (c *contender) hasGivenUp() bool {
	c.referee.mu.Lock()
	defer c.referee.mu.Unlock()
	return c.gaveUp
}

func (c *contender) isClosing() bool {
	c.referee.mu.Lock()
	defer c.referee.mu.Unlock()
	return c.closing
}

// isQuietByPlan reports whether the plan has no troubles for the client.
func (c *contender) isQuietByPlan() bool { return len(c.plan.troubles) == 0 }

func (c *contender) isQuiet() bool {
	c.referee.mu.Lock()
	defer c.referee.mu.Unlock()
	return !c.troubled
}

// close closes the client, and checks that closing takes bounded time whatever the servers do.
func (c *contender) close() {
	c.referee.mu.Lock()
	c.closing = true
	if now := time.Now(); now.After(c.calmFrom) { // on a line that hangs nothing can be deleted: the session has to expire
		c.calmFrom = now
	}
	c.referee.recordLocked("%s: closed", c)
	c.referee.mu.Unlock()
	start := time.Now()
	err := c.client.Close()
	untilConnected := min(operationTimeout, c.referee.timeout*2/3) // as long as others can't have got what was held
	if took := time.Since(start); err != nil || took > untilConnected+c.referee.timeout/3+3*time.Second {
		c.referee.reportFault("%s: close took %v: %v", c, took, err)
	}
}
