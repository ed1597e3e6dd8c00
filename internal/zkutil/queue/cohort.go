package queue

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Bounds are the bounds of a cohort: see mutex.Cohort.
type Bounds struct {
	MaxPasses         int
	MaxTenure, Linger time.Duration
}

// cohort is many callers of one session who share one contender of a queue. The contender joins the queue
// when a caller waits. Its hold is a tenure: the callers get parts of it, one after the other, in the order
// of their arrival. The rules for the end of a tenure are those of type tenure.
//
// The algorithm is lock cohorting (Dice, Marathe and Shavit, 2012), with the queue as the global lock.
//
// Cohort.mu is held over no request and over no user code. It is locked before Session.mu.
type cohort struct {
	s      *session.Session
	bounds Bounds

	mu         sync.Mutex
	waiters    list.List      // of *member, in the order of arrival
	arrived    uint64         // counts the callers
	lastServed uint64         // the number of the last caller that got a part
	isTrying   bool           // a TryAcquire asks the queue
	candidacy  *candidacy     // the contender that waits in the queue; nil: none
	tenure     *tenure        // nil: the cohort does not hold the lock
	next       *session.Place // of the next contender, while callers wait inside; nil: none yet
}

// cohortKey is the key of a cohort in its session.
type cohortKey struct{ session.HoldKey }

// candidacy is the contender of a cohort that waits in the queue.
type candidacy struct {
	cancel      context.CancelFunc // nil: it has not begun to wait
	isCancelled bool
	path        string     // of its znode; "": none yet
	status      WaitStatus // as it was last read
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
	q       *Queue          // of the mutex that it uses: all the same, but for the id
	ctx     context.Context //nolint:containedctx // of its Acquire; the values go to its part
	number  uint64          // the first caller of the cohort has 1
	element *list.Element   // in the cohort's waiters; nil: it has been served. Guarded by cohort.mu
	ahead   int             // how many were ahead of it when it came. Guarded by cohort.mu, until it is served
	isKnown bool            // ahead counts the contenders in the queue as well, not only those inside

	served chan struct{} // closed when the results below are set
	entry  *session.Entry
	err    error
}

// Cohort is a queue whose contenders in this session share one znode.
type Cohort struct {
	*Queue

	shared *cohort
}

// errOtherBounds is returned for a second cohort with other bounds on the same queue.
var errOtherBounds = errors.New("cohort: this client has one on this path with other bounds")

// WithCohort returns the queue as one whose contenders in this session share one znode. All that have
// asked for it must have the same bounds.
func (q *Queue) WithCohort(bounds Bounds) (*Cohort, error) {
	shared := session.Share(q.Session, cohortKey{q.holdKey()}, func() *cohort {
		return &cohort{s: q.Session, bounds: bounds}
	})
	if shared.bounds != bounds {
		return nil, errOtherBounds
	}
	return &Cohort{q, shared}, nil
}

// AcquireTraced waits until it is this call's turn in the cohort while the cohort holds the lock, and returns
// the hold, entered once. If ctx ends first, the error is an InterruptedError. If it may not wait for another
// contender or another caller, the error is ErrNotAcquired; while the cohort holds the lock it sends nothing then.
func (c *Cohort) AcquireTraced(ctx context.Context, mayWait bool, a *session.Acquisition) (*session.Entry, error) {
	if mayWait {
		return c.acquire(ctx, a)
	}
	return c.tryAcquire(ctx, a)
}

func (c *Cohort) acquire(ctx context.Context, a *session.Acquisition) (*session.Entry, error) {
	startedAt := time.Now()
	if ctx.Err() != nil {
		return nil, interrupted(ctx, zkutil.EndOf(ctx), WaitStatus{}, startedAt)
	}
	m := c.shared.join(ctx, c.Queue)
	select {
	case <-m.served:
	case <-ctx.Done():
		if status, hasLeft := c.shared.withdraw(m); hasLeft {
			return nil, interrupted(ctx, zkutil.EndOf(ctx), status, startedAt)
		}
	case <-c.shared.s.Context().Done():
		if _, hasLeft := c.shared.withdraw(m); hasLeft {
			return nil, zkutil.ErrClosed
		}
	}
	a.SetAhead(m.ahead)
	if m.entry != nil && ctx.Err() != nil { // the lock has come to a caller who was about to give up
		m.entry.BeginLeave()
		return nil, interrupted(ctx, zkutil.EndOf(ctx), WaitStatus{Position: 1}, startedAt)
	}
	return m.entry, m.err
}

// join adds a caller as the last of those who wait.
func (c *cohort) join(ctx context.Context, q *Queue) *member {
	c.mu.Lock()
	c.arrived++
	m := &member{q: q, ctx: ctx, number: c.arrived, served: make(chan struct{})}
	m.element = c.waiters.PushBack(m)
	m.ahead = c.waiters.Len() - 1
	if status := c.statusLocked(m); status.Position > 0 {
		m.ahead, m.isKnown = status.Position-1, true
	}
	over := c.advanceLocked()
	c.mu.Unlock()
	if over != nil { // in the background, because ctx bounds the wait
		c.s.Background(func(context.Context) { _ = over.end() })
	}
	return m
}

// withdraw removes a caller that waits no longer, and returns what it has to know of its wait. The
// contender leaves the queue with the last caller. hasLeft is false for one that has been served.
func (c *cohort) withdraw(m *member) (status WaitStatus, hasLeft bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.element == nil {
		return status, false
	}
	status = c.statusLocked(m)
	c.removeLocked(m)
	if c.waiters.Len() == 0 && c.candidacy != nil {
		c.candidacy.cancelLocked()
	}
	return status, true
}

// statusLocked returns how long the queue before a caller is, as far as is known. Callers before it may
// have left.
func (c *cohort) statusLocked(m *member) WaitStatus {
	inside := min(int(m.number-c.lastServed), c.waiters.Len()) //nolint:gosec // as many as callers at most
	switch {
	case c.tenure != nil:
		if !c.tenure.isHeld {
			inside--
		}
		return WaitStatus{Position: 1 + inside, Holder: c.tenure.holder}
	case c.candidacy != nil && c.candidacy.status.Position > 0:
		status := c.candidacy.status
		status.Position += inside - 1
		return status
	default:
		return WaitStatus{}
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

// failAllLocked gives all who wait the error with which the contender has failed.
func (c *cohort) failAllLocked(err error) {
	for c.waiters.Len() > 0 {
		c.serveLocked(c.firstLocked(), nil, err)
	}
}

// firstLocked returns the caller that waits for the longest time, nil if nobody waits.
func (c *cohort) firstLocked() *member {
	if front := c.waiters.Front(); front != nil {
		return front.Value.(*member)
	}
	return nil
}

// advanceLocked does what is due: it serves the next caller, or sends the contender into the queue. The
// caller has to end the tenure that it returns, which is over.
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
func (c *cohort) standLocked(q *Queue) {
	own := &candidacy{}
	c.candidacy = own
	place := c.next
	c.next = nil
	standing := *q
	standing.OnJoined = func(path string) { c.update(func() { own.path = path }) }
	standing.OnStatus = func(status WaitStatus) { c.update(func() { own.status = status }) }
	if !c.s.Background(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c.update(func() {
			if own.cancel = cancel; own.isCancelled {
				cancel()
			}
		})
		whole, err := standing.acquireInPlace(ctx, place)
		c.endCandidacy(own, q, whole, err)
	}) {
		c.candidacy = nil // the session has ended, and its budget with it
		c.failAllLocked(zkutil.ErrClosed)
	}
}

func (c *cohort) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// endCandidacy takes the outcome of a contender's wait in the queue.
func (c *cohort) endCandidacy(own *candidacy, q *Queue, whole *session.Entry, err error) {
	c.mu.Lock()
	c.candidacy = nil
	switch {
	case err == nil:
		c.tenure = newTenure(c, q, whole)
		c.tenure.ahead = own.status.ahead
	case c.s.Context().Err() != nil:
		c.failAllLocked(zkutil.ErrClosed)
	case !own.isCancelled: // otherwise nobody has waited any more
		c.failAllLocked(err)
	}
	over := c.advanceLocked()
	c.mu.Unlock()
	_ = over.end() // a failure is logged, and the deletion goes on
}

// Inside returns the path of the cohort's znode, "" if it has none, and how many callers wait inside.
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
