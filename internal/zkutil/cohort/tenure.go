package cohort

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// tenure is the time for which a cohort holds the lock. As soon as a caller waits inside, or nobody holds the lock inside, a goroutine of the
// session attends the tenure, with a watch on the directory.
//
// While a contender from elsewhere waits, the tenure ends after MaxPasses passes, or after MaxTenure. The cohort knows nothing of contenders
// before the first listing of the directory, and while the connection is down. Such a time counts as if a contender had come at the beginning.
// If the bounds are reached meanwhile, the next caller waits until the directory is listed.
//
// Fields are guarded by cohort.mu, except those that newTenure sets.
type tenure struct {
	c      *cohort
	q      *queue.Queue
	base   *session.Entry    // the hold; the callers get parts of the hold
	holder queue.Participant // the cohort as the waiters see the holder
	ahead  int               // of the contender when it had joined the queue
	kick   chan struct{}     // wakes the goroutine that attends, when isAwaitingKick

	isHeld         bool      // somebody inside holds the lock
	hasServed      bool      // the first caller has got its part
	passes         int       // since othersSince
	othersSince    time.Time // since when somebody from elsewhere may wait; zero: nobody does
	isKnown        bool      // the directory was listed, and nothing has changed since
	isAttended     bool
	freeAt         time.Time // when the last part was left
	isAwaitingKick bool      // the goroutine that attends has no timer
}

// newTenure returns the tenure of a hold that was just granted.
func newTenure(c *cohort, q *queue.Queue, base *session.Entry) *tenure {
	return &tenure{
		c: c, q: q, base: base, kick: make(chan struct{}, 1), othersSince: time.Now(),
		holder: queue.Participant{Path: base.Path(), Data: []byte(q.ID()), Token: base.Token()},
	}
}

// move is what a tenure does next when nobody inside holds the lock.
type move int

const (
	passOn move = iota // the next caller gets the lock
	linger             // the znode stays for a while, because a caller may come
	look               // the next caller waits until the directory is listed
	yield              // the znode goes
)

// next decides what a tenure does next.
func (t *tenure) next(now time.Time, isAwaited bool) move {
	bounds := t.c.bounds
	mayOthersWait := !t.othersSince.IsZero()
	isAtBound := mayOthersWait && (t.passes >= bounds.MaxPasses || now.Sub(t.othersSince) >= bounds.MaxTenure)
	switch {
	case isAwaited && !t.hasServed: // a revocation before the first pass is for the first caller to see
		return passOn
	case t.isRevoked(), isAtBound && t.isKnown:
		return yield
	case isAwaited && isAtBound:
		return look
	case isAwaited:
		return passOn
	case bounds.Linger > 0 && t.hasServed && (!mayOthersWait || !t.isKnown) && now.Sub(t.freeAt) < bounds.Linger:
		return linger
	default:
		return yield
	}
}

func (t *tenure) isRevoked() bool {
	select {
	case <-t.base.Revoked():
		return true
	default:
		return false
	}
}

// advanceTenureLocked makes the next move of a tenure while nobody inside holds the lock.
func (c *cohort) advanceTenureLocked(t *tenure) (over *tenure) {
	first := c.firstLocked()
	switch t.next(time.Now(), first != nil) {
	case passOn:
		entry := t.passLocked(first.ctx, first.maxHold)
		if entry == nil {
			c.tenure = nil // lost
			return nil
		}
		c.serveLocked(first, entry, nil)
		return nil
	case yield:
		c.reserveLocked(t)
		c.tenure = nil
		return t
	case linger:
		t.attendLocked()
		t.kickLocked()
	default: // the goroutine that attends is about to list the directory
		t.attendLocked()
	}
	return nil
}

// reserveLocked keeps the place of the tenure's znode for the callers who wait inside: in a full session they would lose the place to another
// directory at the end of the znode.
func (c *cohort) reserveLocked(t *tenure) {
	if c.next == nil && c.waiters.Len() > 0 {
		c.next = c.s.Budget().Inherit(t.base.Path())
	}
}

// kickLocked wakes the goroutine that attends, if the goroutine has no timer.
func (t *tenure) kickLocked() {
	if t.isAwaitingKick {
		t.isAwaitingKick = false
		select {
		case t.kick <- struct{}{}:
		default: // a kick is under way
		}
	}
}

// passLocked gives the lock to a caller inside, and returns nil if the tenure was lost.
func (t *tenure) passLocked(ctx context.Context, maxHold time.Duration) *session.Entry {
	entry, err := t.base.Part(ctx, maxHold, t.onLeft)
	if err != nil {
		return nil
	}
	if t.hasServed && !t.othersSince.IsZero() {
		t.passes++
	}
	t.hasServed, t.isHeld = true, true
	return entry
}

// onLeft is called when the caller inside who held the lock has left, and returns when the next caller has the lock or, at the end of the
// tenure, when the deletion of the znode has begun.
func (t *tenure) onLeft() session.Leaving {
	c := t.c
	c.mu.Lock()
	t.isHeld, t.freeAt = false, time.Now()
	var over *tenure
	if c.tenure == t {
		over = c.advanceLocked()
	}
	c.mu.Unlock()
	if t.base.Context().Err() != nil { // lost meanwhile: the session deletes the znode
		over = t
	}
	return over.beginEnd()
}

// end deletes the znode of a tenure that is over, and waits for the end of the deletion. t may be nil.
func (t *tenure) end() error { return t.beginEnd().Await(nil) }

// beginEnd is end without the wait.
func (t *tenure) beginEnd() session.Leaving {
	if t == nil {
		return session.Leaving{}
	}
	return t.base.EndWhole()
}
