package cohort

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/shared"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
)

// Bounds are the bounds of a cohort, documented at mutex.Cohort.
type Bounds struct {
	MaxPasses         int
	MaxTenure, Linger time.Duration
}

// cohort is many callers of a session who share one contender of a queue. The contender joins the queue when a caller waits.
// The hold of the contender is a tenure. The callers get parts of the hold, one after the other, in the order of their arrival.
// Type tenure decides when a tenure ends.
//
// The algorithm is lock cohorting (Dice, Marathe and Shavit, 2012), with the queue as the global lock.
//
// No request is sent and no user code runs under cohort.mu. cohort.mu is locked before Session.mu.
type cohort struct {
	s      *session.Session
	bounds Bounds

	mu         sync.Mutex
	waiters    list.List           // of *member, in the order of arrival
	arrived    uint64              // counts the callers
	lastServed uint64              // the number of the last caller that got a part
	isTrying   bool                // a TryAcquire asks the queue
	candidacy  *candidacy          // the contender that waits in the queue; nil: none
	tenure     *tenure             // nil if the cohort does not hold the lock
	over       *tenure             // an ended tenure whose delete is not sent yet; nil: none
	next       *budget.Reservation // of the next contender, while callers wait inside; nil: none yet
}

// cohortKey is the key of a cohort in its session.
type cohortKey struct{ session.HoldKey }

// candidacy is the contender of a cohort that waits in the queue.
type candidacy struct {
	done        chan struct{}      // closed at the end of the wait
	cancel      context.CancelFunc // nil if not waiting yet
	isCancelled bool
	path        string           // of its znode; "": none yet
	status      queue.WaitStatus // at the latest look at the queue
}

// cancelLocked has the contender leave the queue.
func (c *candidacy) cancelLocked() {
	c.isCancelled = true
	if c.cancel != nil {
		c.cancel()
	}
}

// member is a caller that waits for a part of a tenure.
type member struct {
	q       *queue.Queue    // of the mutex that the caller uses: all such queues are the same, but for the id
	ctx     context.Context //nolint:containedctx // of its Acquire; the values go to its part
	maxHold time.Duration   // of its part; 0: none
	number  uint64          // the first caller of the cohort has 1
	element *list.Element   // in the cohort's waiters; nil if the caller was served. Guarded by cohort.mu
	ahead   int             // how many were ahead at the arrival. Guarded by cohort.mu, until the caller is served
	isKnown bool            // ahead counts the contenders in the queue as well, not only those inside

	served chan struct{} // closed when the results below are set
	entry  *session.Entry
	err    error
}

// Cohort is a queue whose contenders in this session share one znode.
type Cohort struct {
	*queue.Queue

	shared  *cohort
	maxHold time.Duration
}

// errOtherBounds is returned for a second cohort on the same queue whose bounds differ.
var errOtherBounds = errors.New("cohort: this client has one on this path with other bounds")

// New returns q as a queue whose contenders in this session share one znode. maxHold limits each caller's hold, 0 for no limit; q has
// no limit of its own. All calls of New for the same queue must have the same bounds.
func New(q *queue.Queue, bounds Bounds, maxHold time.Duration) (*Cohort, error) {
	shared := shared.Value(q.Session.Shared(), cohortKey{q.HoldKey()}, func() *cohort {
		return &cohort{s: q.Session, bounds: bounds}
	})
	if shared.bounds != bounds {
		return nil, errOtherBounds
	}
	return &Cohort{q, shared, maxHold}, nil
}

// Acquire waits for the call's turn inside the cohort while the cohort holds the lock, and returns the hold, entered once. If
// ctx ends first, the error is an InterruptedError. If the call may not wait and would have to wait for another contender or
// another caller, the error is ErrNotAcquired; while the cohort holds the lock, such a call sends nothing.
func (c *Cohort) Acquire(ctx context.Context, mayWait bool, a *trace.Acquisition) (*session.Entry, error) {
	if mayWait {
		return c.acquire(ctx, a)
	}
	return c.tryAcquire(ctx, a)
}

func (c *Cohort) acquire(ctx context.Context, a *trace.Acquisition) (*session.Entry, error) {
	startedAt := time.Now()
	if ctx.Err() != nil {
		return nil, queue.Interrupted(ctx, zkutil.EndOf(ctx), queue.WaitStatus{}, startedAt)
	}
	m := c.shared.join(ctx, c.Queue, c.maxHold)
	select {
	case <-m.served:
	case <-ctx.Done():
		if status, hasLeft := c.shared.withdraw(m); hasLeft {
			return nil, queue.Interrupted(ctx, zkutil.EndOf(ctx), status, startedAt)
		}
	case <-c.shared.s.Context().Done():
		if _, hasLeft := c.shared.withdraw(m); hasLeft {
			return nil, zkutil.ErrClosed
		}
	}
	a.SetAhead(m.ahead)
	if m.entry != nil && ctx.Err() != nil { // the caller got the lock while giving up
		m.entry.BeginLeave()
		return nil, queue.Interrupted(ctx, zkutil.EndOf(ctx), queue.WaitStatus{Position: 1}, startedAt)
	}
	return m.entry, m.err
}

// join adds a caller at the end of the waiters.
func (c *cohort) join(ctx context.Context, q *queue.Queue, maxHold time.Duration) *member {
	c.mu.Lock()
	c.arrived++
	m := &member{q: q, maxHold: maxHold, ctx: ctx, number: c.arrived, served: make(chan struct{})}
	m.element = c.waiters.PushBack(m)
	m.ahead = c.waiters.Len() - 1
	if status := c.statusLocked(c.positionLocked(m)); status.Position > 0 {
		m.ahead, m.isKnown = status.Position-1, true
	}
	over := c.advanceLocked()
	c.mu.Unlock()
	if over != nil { // in the background, because ctx bounds the wait
		c.s.Background(func(context.Context) { _ = over.end() })
	}
	return m
}

// withdraw removes a caller that gives up, and returns the status of the caller's wait. The contender leaves the queue with the
// last caller. hasLeft is false for a caller that was served.
func (c *cohort) withdraw(m *member) (status queue.WaitStatus, hasLeft bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.element == nil {
		return status, false
	}
	status = c.statusLocked(c.positionLocked(m))
	c.removeLocked(m)
	if c.waiters.Len() == 0 && c.candidacy != nil {
		c.candidacy.cancelLocked()
	}
	return status, true
}

// positionLocked returns the position of a caller among the waiters of the cohort.
func (c *cohort) positionLocked(m *member) int {
	return min(int(m.number-c.lastServed), c.waiters.Len()) //nolint:gosec // as many as callers at most
}

// statusLocked returns the known length of the queue ahead of a caller, who is at position inside among the waiters of the
// cohort. Some of the callers ahead may no longer wait.
func (c *cohort) statusLocked(inside int) queue.WaitStatus {
	switch {
	case c.tenure != nil:
		if !c.tenure.isHeld {
			inside--
		}
		return queue.WaitStatus{Position: 1 + inside, Holder: c.tenure.holder}
	case c.candidacy != nil && c.candidacy.status.Position > 0:
		status := c.candidacy.status
		status.Position += inside - 1
		return status
	default:
		return queue.WaitStatus{}
	}
}

func (c *cohort) removeLocked(m *member) {
	c.waiters.Remove(m.element)
	m.element = nil
	if c.next != nil && c.waiters.Len() == 0 {
		c.next.End()
		c.next = nil
	}
}

// serveLocked gives a caller the result of its wait.
func (c *cohort) serveLocked(m *member, entry *session.Entry, err error) {
	c.removeLocked(m)
	c.lastServed = m.number
	m.entry, m.err = entry, err
	if entry != nil && !m.isKnown {
		m.ahead += c.tenure.ahead
	}
	close(m.served)
}

// failAllLocked gives the error of the contender to all waiters.
func (c *cohort) failAllLocked(err error) {
	for c.waiters.Len() > 0 {
		c.serveLocked(c.firstLocked(), nil, err)
	}
}

// firstLocked returns the longest-waiting caller, or nil if none waits.
func (c *cohort) firstLocked() *member {
	if front := c.waiters.Front(); front != nil {
		return front.Value.(*member)
	}
	return nil
}

// advanceLocked does the work that is due: serves the next caller, or sends the contender into the queue. The caller has to end the returned
// tenure, which is over.
func (c *cohort) advanceLocked() (over *tenure) {
	if t := c.tenure; t != nil && t.base.Context().Err() != nil {
		c.tenure = nil // lost
	}
	if t := c.tenure; t != nil && !t.isHeld {
		over = c.advanceTenureLocked(t)
	}
	if c.tenure == nil && c.candidacy == nil && !c.isTrying && c.waiters.Len() > 0 {
		c.standLocked(c.firstLocked().q)
	}
	if c.tenure != nil && c.waiters.Len() > 0 {
		c.tenure.attendLocked()
		c.reserveLocked(c.tenure)
	}
	return over
}

// standLocked sends the contender of the cohort into the queue.
func (c *cohort) standLocked(q *queue.Queue) {
	own := &candidacy{done: make(chan struct{})}
	c.candidacy = own
	reservation := c.next
	c.next = nil
	standing := *q
	standing.OnJoined = func(path string) { c.update(func() { own.path = path }) }
	standing.OnStatus = func(status queue.WaitStatus) { c.update(func() { own.status = status }) }
	if !c.s.Background(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c.update(func() {
			if own.cancel = cancel; own.isCancelled {
				cancel()
			}
		})
		whole, err := c.acquireWhole(ctx, &standing, reservation)
		c.endCandidacy(own, q, whole, err)
	}) {
		c.candidacy = nil // the session is over, and its budget with it
		c.failAllLocked(zkutil.ErrClosed)
	}
}

// acquireWhole acquires the hold of the contender, with the reservation that was kept for the contender, or with a new one.
func (c *cohort) acquireWhole(ctx context.Context, q *queue.Queue, reservation *budget.Reservation) (*session.Entry, error) {
	if reservation == nil {
		return q.Acquire(ctx, true, nil)
	}
	c.s.Retain()
	defer c.s.Release()
	return q.AcquireReserved(ctx, reservation, time.Now(), true, nil)
}

func (c *cohort) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// endCandidacy records the outcome of the contender's wait in the queue.
func (c *cohort) endCandidacy(own *candidacy, q *queue.Queue, whole *session.Entry, err error) {
	c.mu.Lock()
	c.candidacy = nil
	close(own.done)
	switch {
	case err == nil:
		c.tenure = newTenure(c, q, whole)
		c.tenure.ahead = own.status.Ahead
	case c.s.Context().Err() != nil:
		c.failAllLocked(zkutil.ErrClosed)
	case !own.isCancelled: // otherwise no caller waits any more
		c.failAllLocked(err)
	}
	over := c.advanceLocked()
	c.mu.Unlock()
	_ = over.end() // a failure is logged, and the deletion is retried
}

// Inside returns the path of the cohort's znode, or "" without a znode, and how many callers wait inside.
func (c *Cohort) Inside() (path string, waiting int) {
	shared := c.shared
	shared.mu.Lock()
	defer shared.mu.Unlock()
	switch {
	case shared.tenure != nil:
		path = shared.tenure.holder.Path
	case shared.candidacy != nil:
		path = shared.candidacy.path
	}
	return path, shared.waiters.Len()
}

func (c *Cohort) tryAcquire(ctx context.Context, a *trace.Acquisition) (*session.Entry, error) {
	startedAt := time.Now()
	for {
		if ctx.Err() != nil {
			return nil, queue.Interrupted(ctx, zkutil.EndOf(ctx), queue.WaitStatus{}, startedAt)
		}
		if c.Queue.Session.Context().Err() != nil { // a caller inside may not know of the end yet
			return nil, zkutil.ErrClosed
		}
		entry, over, leaving, err := c.shared.tryInside(ctx, c.Queue, c.maxHold, startedAt)
		if entry != nil || err != nil {
			return entry, err
		}
		if leaving != nil {
			select {
			case <-leaving:
			case <-ctx.Done():
			case <-c.Queue.Session.Context().Done():
			}
			continue
		}
		if over != nil {
			c.shared.endWithin(ctx, over)
		}
		whole, err := c.Queue.Acquire(ctx, false, a)
		if entry, isLost := c.shared.endTry(ctx, c, whole); entry != nil || !isLost {
			return entry, err
		}
	}
}

// tryInside decides a TryAcquire without a request, if possible: with a part of the tenure, or with ErrNotAcquired. While the cohort's
// own znode is about to leave the queue, the caller has to wait until leaving is closed, and to try again. Otherwise the caller has
// to end the tenure that is over, if tryInside returns such a tenure, to ask the queue, and to call endTry.
func (c *cohort) tryInside(
	ctx context.Context, q *queue.Queue, maxHold time.Duration, startedAt time.Time,
) (entry *session.Entry, over *tenure, leaving <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenure
	isLost := t != nil && t.base.Context().Err() != nil
	switch {
	case c.over != nil:
		return nil, nil, c.over.sent, nil
	case c.candidacy != nil && c.candidacy.isCancelled && c.waiters.Len() == 0:
		return nil, nil, c.candidacy.done, nil
	}
	isTaken := c.isTrying || c.candidacy != nil || c.waiters.Len() > 0 || t != nil && !isLost && t.isHeld
	if isTaken {
		return nil, nil, nil, queue.Interrupted(ctx, zkutil.ErrNotAcquired, c.statusLocked(c.waiters.Len()+1), startedAt)
	}
	if t != nil && !isLost {
		if c.bounds.next(t.stay(time.Now(), true)) == passOn {
			if entry = t.passLocked(ctx, q, maxHold); entry != nil {
				c.arrived++
				c.lastServed = c.arrived
				return entry, nil, nil, nil
			}
		}
		over = t
	}
	c.tenure, c.isTrying = nil, true
	return nil, over, nil, nil
}

// endTry records the outcome of a TryAcquire that asked the queue; whole is nil after a failure. After a success, the caller of
// TryAcquire gets the first part of a tenure; isLost reports that the tenure was lost before.
func (c *cohort) endTry(ctx context.Context, caller *Cohort, whole *session.Entry) (entry *session.Entry, isLost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isTrying = false
	if whole != nil {
		c.tenure = newTenure(c, caller.Queue, whole)
		entry = c.tenure.passLocked(ctx, caller.Queue, caller.maxHold)
		c.arrived++
		c.lastServed = c.arrived
	}
	_ = c.advanceLocked() // no tenure is over: a new one is held, or lost
	return entry, whole != nil && entry == nil
}

// endWithin ends a tenure, and waits for the deletion of its znode, for as long as ctx lasts, and for an operation timeout at
// most. A later delete is a departure, described in package departures.
func (c *cohort) endWithin(ctx context.Context, t *tenure) {
	done := make(chan struct{})
	if !c.s.Background(func(context.Context) {
		defer close(done)
		_ = t.end() // a failure is logged, and the deletion is retried
	}) {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}
