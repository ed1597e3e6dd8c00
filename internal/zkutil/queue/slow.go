package queue

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// slowWait decides about the warnings for a wait. The zero value is a wait without warnings: that of a candidate, which may wait for
// years.
type slowWait struct {
	startedAt time.Time
	warnAt    time.Time // when the wait counts as slow, and later when the next warning is due; zero: never
	holders   *Queue    // the queue of the holders; nil: the waiters' queue
	ownAt     time.Time // when to look for a hold of our own ahead; zero: never, or the look was done
	wasOwn    bool      // the warning of a hold of our own was logged

	holderAt time.Time    // when to read the holder; zero: never, or the holder is known
	reads    *holderReads // keeps the latest read alive, so that other waiters share it; nil: there was none
}

// ownAfter is for how long a hold of our own may keep a waiter before the client logs a warning. Goroutines that share a client wait
// for each other all the time, for shorter times.
const ownAfter = time.Second

// NewWaitStatus returns the status of a wait in q since startedAt.
func NewWaitStatus(q *Queue, startedAt time.Time) *WaitStatus {
	status := &WaitStatus{}
	status.startedAt = startedAt
	if limit := q.Session.SlowWait(); limit > 0 {
		status.warnAt = startedAt.Add(limit)
	}
	return status
}

// SetHolders names the queue of the holders, if the holders are not in the waiters' queue.
func (s *WaitStatus) SetHolders(q *Queue) { s.holders = q }

// Waited returns how long the wait has lasted.
func (s *WaitStatus) Waited() time.Duration { return time.Since(s.startedAt) }

// UntilSlow returns the time until the wait counts as slow.
func (s *WaitStatus) UntilSlow() time.Duration {
	if s == nil {
		return math.MaxInt64
	}
	return untilDue(s.warnAt)
}

// untilOwn returns the time until the waiter looks for a hold of our own ahead.
func (s *WaitStatus) untilOwn() time.Duration {
	if s == nil {
		return math.MaxInt64
	}
	return untilDue(s.ownAt)
}

// untilDue returns the time until due, or math.MaxInt64 if due is zero.
func untilDue(due time.Time) time.Duration {
	if due.IsZero() {
		return math.MaxInt64
	}
	return time.Until(due)
}

// slowPause is the time between two warnings of slow waits for one path, however many waiters a session has there.
const slowPause = time.Minute

// WarnIfSlow logs a wait that counts as slow, unless another wait for the same path was logged within slowPause. The holder is read
// in the background, so that the waiter goes on meanwhile. path is the path of the waiter's znode in q.
func (s *WaitStatus) WarnIfSlow(q *Queue, path string) {
	if s.UntilSlow() > 0 {
		return
	}
	isDue := q.Session.MayWarnOf("slow wait: " + q.Dir)
	s.warnAt = time.Now().Add(slowPause)
	if !isDue {
		return
	}
	waited, holders, lasting := s.Waited(), s.holders, s.lasting
	q.Session.Background(func(ctx context.Context) { q.logSlowWait(ctx, path, waited, holders, lasting) })
}

// logSlowWait logs who is ahead of a waiter, unless the wait is over. lasting comes from the WaitStatus of the waiter.
func (q *Queue) logSlowWait(ctx context.Context, path string, waited time.Duration, holders *Queue, lasting error) {
	queue, err := session.Repeat(ctx, q.Session, func() ([]Contender, error) { return q.ListContenders(ctx) })
	if err != nil {
		return // the session has ended, and all waits with it
	}
	_, name := zkutil.Split(path)
	position := slices.IndexFunc(queue, func(c Contender) bool { return c.Name == name }) + 1
	waiters := len(queue)
	if holders == nil {
		holders, waiters = q, q.countWaiters(queue)
	}
	holder, err := holders.Leader(ctx)
	if position == 0 || err != nil && !errors.Is(err, zk.ErrNoNode) {
		return
	}
	id := string(holder.Data)
	if id == session.Revocation {
		id = ""
	}
	attributes := []any{"path", q.Path, "waited", waited.Round(time.Millisecond), "position", position, "waiters", waiters, "holder", id, "since", holder.Created}
	if holder.IsLasting {
		lasting = holder.lasting()
	}
	if lasting != nil {
		attributes = append(attributes, "err", lasting)
	}
	q.Session.Log(slog.LevelWarn, "slow wait", attributes...)
}

// countWaiters returns how many contenders the rule keeps waiting.
func (q *Queue) countWaiters(queue []Contender) (n int) {
	for i := range queue {
		if q.Rule(queue, i) >= 0 {
			n++
		}
	}
	return n
}

// recordBlocker records the blocker, which was read, and the holder if the blocker is the holder.
func (w *waiter) recordBlocker() {
	blocker := ParticipantOf(w.blocker, w.blockerWatch.Node())
	if w.status != nil {
		w.status.lasting = blocker.lasting()
		isHolder := w.status.Holder.Path == w.blocker
		if isHolder {
			w.status.Holder = blocker
		}
		if isHolder || blocker.IsLasting {
			w.q.reportStatus(*w.status)
		}
		w.expectHolderRead()
	}
	if w.q.OnWaiting != nil { // after the watch, because a server that refuses the watch keeps us from waiting
		w.q.OnWaiting(blocker.lasting())
	}
}

// newTimer returns a timer for the next doDue, or nil if nothing will be due.
func (w *waiter) newTimer() *time.Timer {
	until := min(w.status.UntilSlow(), w.status.untilOwn(), w.status.untilHolder())
	if w.ownWatch == nil {
		until = min(until, time.Until(w.settledAt))
	}
	if until == math.MaxInt64 {
		return nil
	}
	return time.NewTimer(until)
}

// doDue does the timed work of a wait that is due.
func (w *waiter) doDue(ctx context.Context) error {
	if w.status != nil {
		w.status.WarnIfSlow(w.q, w.path)
		w.warnIfOwnHold()
		w.readHolderIfDue(ctx)
	}
	if time.Until(w.settledAt) > 0 {
		return nil
	}
	return w.watchOwnNode(ctx)
}

// expectOwnHold schedules the look for a hold of our own, unless the warning was logged already.
func (w *waiter) expectOwnHold() {
	if s := w.status; s != nil && !s.startedAt.IsZero() && s.holders == nil && !s.wasOwn {
		s.ownAt = time.Now().Add(ownAfter)
	}
}

// warnIfOwnHold warns once of a wait for a lock that the same client has held for ownAfter. Either another goroutine of the process
// holds the lock, or the caller waits for itself, because the caller has not passed the context of the lease on.
func (w *waiter) warnIfOwnHold() {
	status := w.status
	if status.untilOwn() > 0 {
		return
	}
	status.ownAt = time.Time{}
	held := max(w.s.HeldFor(status.Holder.Path), w.s.HeldFor(w.blocker))
	if status.wasOwn = held >= ownAfter; status.wasOwn && w.s.MayWarnOf(w.q.Dir) {
		w.s.Log(slog.LevelWarn, "waiting for a lock that the same client holds", "path", w.q.Path, "holder", w.q.ID())
	}
}
