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

// slowWait is what the log is told about one wait. Its zero value is a wait of which nothing is told: that of a
// candidate, which may wait for years.
type slowWait struct {
	startedAt time.Time
	warnAt    time.Time // when the wait is a slow one; zero: never, or it was told
	holders   *Queue    // where the holders are, if it is not the queue of the waiters
	ownAt     time.Time // when a wait for a hold of our own is looked for; zero: never, or that was done
	wasOwn    bool      // such a wait was told
}

// ownAfter is for how long a hold of our own may keep a waiter before that is told. Goroutines that share a
// client wait for each other all the time, for less.
const ownAfter = time.Second

func newWaitStatus(q *Queue, startedAt time.Time) *WaitStatus {
	status := &WaitStatus{}
	status.startedAt = startedAt
	if limit := q.Session.SlowWait(); limit > 0 {
		status.warnAt = startedAt.Add(limit)
	}
	return status
}

// untilSlow is how long the wait may still last before it is told.
func (s *WaitStatus) untilSlow() time.Duration {
	if s == nil {
		return math.MaxInt64
	}
	return untilDue(s.warnAt)
}

// untilOwn is how long the wait may still last before a hold of our own is looked for.
func (s *WaitStatus) untilOwn() time.Duration {
	if s == nil {
		return math.MaxInt64
	}
	return untilDue(s.ownAt)
}

// untilDue is math.MaxInt64 if due is zero.
func untilDue(due time.Time) time.Duration {
	if due.IsZero() {
		return math.MaxInt64
	}
	return time.Until(due)
}

// warnIfSlow writes one line about a wait that has lasted too long. The holder is read in the background, so
// that the waiter goes on meanwhile. path is that of the waiter's znode in q.
func (s *WaitStatus) warnIfSlow(q *Queue, path string) {
	if s.untilSlow() > 0 {
		return
	}
	s.warnAt = time.Time{}
	waited, holders := time.Since(s.startedAt), s.holders
	if holders == nil {
		holders = q
	}
	q.Session.Background(func(ctx context.Context) { q.logSlowWait(ctx, path, waited, holders) })
}

// logSlowWait writes who is ahead of a waiter, unless the wait is over.
func (q *Queue) logSlowWait(ctx context.Context, path string, waited time.Duration, holders *Queue) {
	queue, err := session.Repeat(ctx, q.Session, func() ([]Contender, error) { return q.listContenders(ctx) })
	if err != nil {
		return // the session has ended, and all waits with it
	}
	_, name := zkutil.Split(path)
	position := slices.IndexFunc(queue, func(c Contender) bool { return c.Name == name }) + 1
	holder, err := holders.Leader(ctx)
	if position == 0 || err != nil && !errors.Is(err, zk.ErrNoNode) {
		return
	}
	id := string(holder.Data)
	if id == session.Revocation {
		id = ""
	}
	q.Session.Log(slog.LevelWarn, "slow wait", "path", q.Path, "waited", waited.Round(time.Millisecond), "position", position, "holder", id, "since", holder.Created)
}

// The functions below are not inlined, because awaitBlocker, which waits for hours, is to keep a small stack.

// recordHolder takes note of the holder if it is the blocker, which has been read.
//
//go:noinline
func (w *waiter) recordHolder() {
	if w.status != nil && w.status.Holder.Path == w.blocker {
		w.status.Holder = participantOf(w.blocker, w.blockerWatch.Node())
		w.q.reportStatus(*w.status)
	}
}

// newTimer returns a timer for the next doDue, nil if nothing will be due.
//
//go:noinline
func (w *waiter) newTimer() *time.Timer {
	until := min(w.status.untilSlow(), w.status.untilOwn())
	if w.ownWatch == nil {
		until = min(until, time.Until(w.settledAt))
	}
	if until == math.MaxInt64 {
		return nil
	}
	return time.NewTimer(until)
}

// doDue does what is due in a wait by the clock.
//
//go:noinline
func (w *waiter) doDue(ctx context.Context) error {
	if w.status != nil {
		w.status.warnIfSlow(w.q, w.path)
		w.warnIfOwnHold()
	}
	if time.Until(w.settledAt) > 0 {
		return nil
	}
	return w.watchOwnNode(ctx)
}

// expectOwnHold has a wait for a hold of our own looked for, unless it was told already.
//
//go:noinline
func (w *waiter) expectOwnHold() {
	if s := w.status; s != nil && !s.startedAt.IsZero() && s.holders == nil && !s.wasOwn {
		s.ownAt = time.Now().Add(ownAfter)
	}
}

// warnIfOwnHold warns once of a wait for a lock that the same client has held for ownAfter. Either another goroutine of
// the process holds it, or the caller waits for itself, because it has not passed the lease's context on.
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
