package cohort

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// tenure is the time for which a cohort holds the lock. As soon as a caller waits inside, or no caller holds the lock inside, a
// goroutine of the session attends the tenure, with a watch on the directory.
//
// While a contender of another client waits, the tenure ends after MaxPasses passes, or after MaxTenure. The cohort knows
// nothing of contenders before the first listing of the directory, and while the connection is down. Such a time counts as if a
// contender waited from its beginning. If the bounds are reached meanwhile, the next caller waits until the directory is
// listed.
//
// Fields are guarded by cohort.mu, except those that newTenure sets.
type tenure struct {
	c      *cohort
	q      *queue.Queue
	base   *session.Entry    // the hold; the callers get parts of the hold
	holder queue.Participant // the cohort as the waiters see the holder
	ahead  int               // of the contender when it joined the queue
	kick   chan struct{}     // wakes the goroutine that attends, when isAwaitingKick
	sent   chan struct{}     // closed when the delete of a tenure that is over was sent

	isSent         bool      // sent is closed
	isHeld         bool      // a caller inside holds the lock
	hasServed      bool      // the first caller got its part
	passes         int       // since othersSince
	othersSince    time.Time // since when a contender of another client may wait; zero: none
	isKnown        bool      // the directory was listed, and is unchanged since
	isAttended     bool
	freeAt         time.Time // when the last part was left
	isAwaitingKick bool      // the goroutine that attends has no timer
}

// newTenure returns the tenure of a hold that was just granted.
func newTenure(c *cohort, q *queue.Queue, base *session.Entry) *tenure {
	return &tenure{
		c: c, q: q, base: base, kick: make(chan struct{}, 1), sent: make(chan struct{}), othersSince: time.Now(),
		holder: queue.Participant{Path: base.Path(), Data: []byte(q.ID()), Token: base.Token()},
	}
}

// stay returns what decides about the next move of the tenure.
func (t *tenure) stay(now time.Time, isAwaited bool) stay {
	s := stay{
		isAwaited: isAwaited, hasServed: t.hasServed, isRevoked: t.isRevoked(), isKnown: t.isKnown, passes: t.passes, free: now.Sub(t.freeAt),
	}
	if s.mayOthersWait = !t.othersSince.IsZero(); s.mayOthersWait {
		s.waited = now.Sub(t.othersSince)
	}
	return s
}

func (t *tenure) isRevoked() bool {
	select {
	case <-t.base.Revoked():
		return true
	default:
		return false
	}
}

// advanceTenureLocked makes the next move of a tenure while no caller inside holds the lock.
func (c *cohort) advanceTenureLocked(t *tenure) (over *tenure) {
	first := c.firstLocked()
	switch c.bounds.next(t.stay(time.Now(), first != nil)) {
	case passOn:
		if entry := t.passLocked(first.ctx, first.q, first.maxHold); entry != nil { // after a loss, attend makes the cohort continue
			c.serveLocked(first, entry, nil)
		}
	case yield:
		c.reserveLocked(t)
		c.tenure, c.over = nil, t
		return t
	case linger:
		t.attendLocked()
		t.kickLocked()
	default: // the goroutine that attends is about to list the directory
		t.attendLocked()
	}
	return nil
}

// reserveLocked keeps the bytes of the tenure's znode for the callers who wait inside: in a full session they would lose the bytes to another
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
func (t *tenure) passLocked(ctx context.Context, q *queue.Queue, maxHold time.Duration) *session.Entry {
	entry, err := t.base.Part(ctx, maxHold, q.NoWait, t.onLeft)
	if err != nil {
		return nil
	}
	if t.hasServed && !t.othersSince.IsZero() {
		t.passes++
	}
	t.hasServed, t.isHeld = true, true
	return entry
}

// onLeft is called after the holder inside leaves. It returns when the next caller has the lock or, at the end of the tenure,
// when the deletion of the znode is started.
func (t *tenure) onLeft() session.Leaving {
	c := t.c
	c.mu.Lock()
	t.isHeld, t.freeAt = false, time.Now()
	var over *tenure
	if c.tenure == t {
		over = c.advanceLocked()
	}
	c.mu.Unlock()
	if t.base.Context().Err() != nil { // lost meanwhile, so that the session deletes the znode
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
	leaving := t.base.EndWhole()
	c := t.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == t {
		c.over = nil
	}
	if !t.isSent {
		t.isSent = true
		close(t.sent)
	}
	return leaving
}

// attendLocked starts the goroutine that attends a tenure, once.
func (t *tenure) attendLocked() {
	if !t.isAttended {
		t.isAttended = true
		t.c.s.Background(func(context.Context) { t.attend() }) //nolint:contextcheck // ends with the hold
	}
}

// attend finds out whether contenders of other clients wait, and ends a tenure that lingers for too long. At the end of the
// tenure, which may be a loss, attend makes the cohort continue.
func (t *tenure) attend() {
	ctx := t.base.Context()
	for ctx.Err() == nil {
		epoch := t.c.s.Snapshot().Epoch
		if watch := t.lookForOthers(ctx); watch != nil {
			t.awaitChange(ctx, watch, epoch)
			t.c.s.ReleaseWatch(watch)
		} else {
			<-ctx.Done() // because others wait, the tenure will end soon
		}
	}
	_ = t.advance()
}

// lookForOthers lists the directory, and returns a watch from that listing on. The watch is nil if contenders from elsewhere wait, and after
// the end of ctx.
func (t *tenure) lookForOthers(ctx context.Context) *session.Watch {
	s := t.c.s
	contenders, watch, err := t.q.ListAndWatch(ctx)
	if ctx.Err() != nil {
		s.ReleaseWatch(watch)
		return nil
	}
	if err != nil {
		s.Log(slog.LevelWarn, "cohort can't list its queue; assuming that others wait", "path", t.q.Dir, "err", err)
	}
	if err != nil || slices.ContainsFunc(contenders, t.isOther) {
		s.ReleaseWatch(watch)
		watch = nil
	}
	t.c.update(func() {
		t.isKnown = true
		if watch != nil {
			t.othersSince, t.passes = time.Time{}, 0
		}
	})
	_ = t.advance()
	return watch
}

// isOther reports whether a contender is from elsewhere.
func (t *tenure) isOther(c queue.Contender) bool {
	_, own := zkutil.Split(t.base.Path())
	return zkutil.ProtectionOf(c.Name) != zkutil.ProtectionOf(own)
}

// awaitChange returns when new contenders may exist. Until then, awaitChange ends the tenure if the tenure lingers for too
// long, and after a revocation.
func (t *tenure) awaitChange(ctx context.Context, watch *session.Watch, epoch uint64) {
	timer, revoked := time.NewTimer(time.Hour), t.base.Revoked()
	defer timer.Stop()
	for {
		t.resetTimer(timer)
		now := t.c.s.Snapshot()
		if now.Epoch != epoch || !t.c.s.IsConnected() {
			t.expectOthers(false)
			return
		}
		select {
		case <-watch.Fired():
			t.expectOthers(watch.TellsChange())
			return
		case <-revoked:
			revoked = nil
			_ = t.advance()
		case <-timer.C:
			_ = t.advance()
		case <-t.kick:
		case <-now.Changed:
		case <-ctx.Done():
			return
		}
	}
}

// resetTimer sets the timer to the end of the time for which the tenure may linger. While a caller inside holds the lock, no
// timer runs. A kick follows when the tenure begins to linger.
func (t *tenure) resetTimer(timer *time.Timer) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	timer.Stop()
	if t.isAwaitingKick = t.isHeld; !t.isHeld {
		timer.Reset(time.Until(t.freeAt.Add(t.c.bounds.Linger)))
	}
}

// expectOthers records that a contender of another client may wait from now on. If one waits and no caller inside holds the
// lock, the tenure ends.
func (t *tenure) expectOthers(hasOneCome bool) {
	c := t.c
	c.mu.Lock()
	t.isKnown = false
	if t.othersSince.IsZero() {
		t.othersSince, t.passes = time.Now(), 0
	}
	isOver := hasOneCome && c.tenure == t && !t.isHeld
	if isOver {
		c.tenure, c.over = nil, t
		_ = c.advanceLocked() // for a caller that waits for a listing
	}
	c.mu.Unlock()
	if isOver {
		_ = t.end()
	}
}

// advance makes the cohort's next move. An error is about a deletion that the session keeps repeating.
func (t *tenure) advance() error {
	t.c.mu.Lock()
	over := t.c.advanceLocked()
	t.c.mu.Unlock()
	return over.end()
}
