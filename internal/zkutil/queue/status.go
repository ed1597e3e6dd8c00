package queue

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// InterruptedError is the error of an Acquire, TryAcquire or Reenter whose context ended before the call entered a hold, and of a
// TryAcquire with a contender ahead. Package recipes turns an InterruptedError into the public WaitError.
type InterruptedError struct {
	WaitStatus

	Waited time.Duration
	Err    error
}

func (e *InterruptedError) Error() string { return e.Err.Error() }
func (e *InterruptedError) Unwrap() error { return e.Err }

// Interrupted returns err, wrapped in an InterruptedError if err reports the end of ctx, the context of the caller, or
// matches ErrNotAcquired.
func Interrupted(ctx context.Context, err error, status WaitStatus, startedAt time.Time) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zkutil.ErrNotAcquired):
		return &InterruptedError{WaitStatus: status, Waited: time.Since(startedAt), Err: err}
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return &InterruptedError{WaitStatus: status, Waited: time.Since(startedAt), Err: zkutil.Both(err, status.reason)}
	default:
		return err
	}
}

// WaitStatus is the state of the queue at the latest look of a waiter.
type WaitStatus struct {
	Position int         // of the waiter; 1 is the holder, 0 means that the queue was not read yet
	Holder   Participant // the first contender, unless the waiter is the first; with its data only if the waiter read it

	Ahead int // how many were ahead of the waiter at its first look at the queue

	wasRead bool  // Ahead is set
	reason  error // why the waiter waits, if not for an ephemeral znode: ErrNotEphemeral, or as SetReason says

	slowWait
}

// SetHolder records the first contender.
func (s *WaitStatus) SetHolder(p Participant) { s.Holder, s.reason = p, p.lasting() }

// SetReason records why the waiter waits, if no holder is in its way.
func (s *WaitStatus) SetReason(err error) { s.Holder, s.reason = Participant{}, err }

// protectedName matches the names of our znodes.
var protectedName = regexp.MustCompile(zkutil.Protection + `[0-9a-f-]{36}-[a-z0-9_-]*-?[0-9]{10}`)

// IsSameFailure reports whether two errors have the same text but for the names of our znodes, which differ between
// attempts.
func IsSameFailure(a, b error) bool {
	anonymous := func(err error) string { return protectedName.ReplaceAllString(err.Error(), zkutil.Protection) }
	return a != nil && b != nil && anonymous(a) == anonymous(b)
}

// slowWait decides about the warnings for a wait. The zero value is a wait without warnings, as of a candidate, which may wait for
// years.
type slowWait struct {
	startedAt time.Time
	warnAt    time.Time // when the wait counts as slow, and later when the next warning is due; zero: never
	holders   *Queue    // the queue of the holders; nil for the waiters' queue
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
	if limit := q.Session.Config().SlowWait; limit > 0 {
		status.warnAt = startedAt.Add(limit)
	}
	return status
}

// SetHolders names the queue of the holders, if the holders are not in the waiters' queue.
func (s *WaitStatus) SetHolders(q *Queue) { s.holders = q }

// Waited returns the time since the wait began.
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

// holderPatience bounds the read of the holder for a warning, so that the warning is on time while no server answers, and no reads pile up
// in an outage. At most one read a path is under way, because slowPause is longer.
const holderPatience = time.Second

// WarnIfSlow logs a wait that counts as slow, unless another wait for the same path was logged within slowPause. The holder is read
// in the background, so that the waiter can continue. path is the path of the waiter's znode in q, "" for an outage.
func (s *WaitStatus) WarnIfSlow(q *Queue, path string) {
	if s.UntilSlow() > 0 {
		return
	}
	isDue := q.Session.MayWarnOf("slow wait: " + q.Dir)
	s.warnAt = time.Now().Add(slowPause)
	if !isDue {
		return
	}
	latest, waited := *s, s.Waited()
	if path == "" || !q.Session.IsConnected() { // the connection may be back since the caller's look
		q.logWithoutHolder(latest, waited)
		return
	}
	q.Session.Background(func(ctx context.Context) { q.logSlowWait(ctx, path, latest, waited) })
}

// WarnInOutage derives a context for the requests of a wait in q. Each request that fails in an outage and is repeated logs the wait as
// WarnIfSlow does.
func (s *WaitStatus) WarnInOutage(ctx context.Context, q *Queue) context.Context {
	if s == nil || s.warnAt.IsZero() {
		return ctx
	}
	return session.OnRetry(ctx, func() {
		if !q.Session.IsConnected() {
			s.WarnIfSlow(q, "")
		}
	})
}

// logSlowWait logs who is ahead of a waiter, unless the wait is over. latest is the status of the waiter after it waited for that long.
func (q *Queue) logSlowWait(ctx context.Context, path string, latest WaitStatus, waited time.Duration) {
	bounded, cancel := context.WithTimeout(ctx, holderPatience)
	defer cancel()
	queue, err := session.Repeat(bounded, q.Session, func() ([]Contender, error) { return q.ListContenders(bounded) })
	holders, waiters := latest.holders, len(queue)
	if holders == nil {
		holders, waiters = q, q.countWaiters(queue)
	}
	var holder Participant
	if err == nil {
		holder, err = holders.Leader(bounded)
	}
	_, name := zkutil.Split(path)
	position := slices.IndexFunc(queue, func(c Contender) bool { return c.Name == name }) + 1
	switch {
	case ctx.Err() != nil: // the session ended, and all waits with it
		return
	case bounded.Err() != nil:
		q.logWithoutHolder(latest, waited)
		return
	case position == 0 || err != nil && !errors.Is(err, zk.ErrNoNode):
		return
	}
	id := string(holder.Data)
	if id == session.Revocation {
		id = ""
	}
	attributes := []any{"path", q.Path, "waited", waited.Round(time.Millisecond), "position", position, "waiters", waiters}
	if holder.Path != "" {
		attributes = append(attributes, "holder", id, "since", holder.Created)
	}
	reason := latest.reason
	if holder.IsLasting {
		reason = holder.lasting()
	}
	if reason != nil {
		attributes = append(attributes, "err", reason)
	}
	q.Session.Log(slog.LevelWarn, "slow wait", attributes...)
}

// logWithoutHolder logs a slow wait while no server answers, with the position from the latest look at the queue.
func (q *Queue) logWithoutHolder(latest WaitStatus, waited time.Duration) {
	attributes := []any{"path", q.Path, "waited", waited.Round(time.Millisecond)}
	if latest.Position > 0 { // otherwise the waiter has no znode yet
		attributes = append(attributes, "position", latest.Position)
	}
	q.Session.Log(slog.LevelWarn, "slow wait", append(attributes, "err", q.Session.WhyUnavailable())...)
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

// recordBlocker records the blocker, already read, and the holder if the blocker is the holder.
func (w *waiter) recordBlocker() {
	blocker := ParticipantOf(w.blocker, w.blockerWatch.Node())
	if w.status != nil {
		w.status.reason = blocker.lasting()
		isHolder := w.status.Holder.Path == w.blocker
		if isHolder {
			w.status.Holder = blocker
		}
		if isHolder || blocker.IsLasting {
			w.q.reportStatus(*w.status)
		}
		w.expectHolderRead()
	}
	why := zkutil.Both(blocker.lasting(), w.otherKind())
	if w.q.KeepNode && !w.isAnnounced && why == nil {
		w.isAnnounced = true
		w.s.Log(slog.LevelInfo, "in the election", "path", w.q.Path, "id", w.q.ID(), "position", w.ahead+1, "behind", string(blocker.Data))
	}
	if w.q.OnWaiting != nil { // after the watch, because a server that refuses the watch keeps us from waiting
		w.q.OnWaiting(w.ahead+1, blocker, why)
	}
}

// otherKind returns ErrOtherLayout if the blocker is a contender of another recipe: one of the two is the znode of a latch. The two exclude
// each other, but a lock is held for other times than a latch leads, so that one of the paths is most likely wrong.
func (w *waiter) otherKind() error {
	_, name := zkutil.Split(w.blocker)
	if blocker, ok := newContender(name, w.q.Markers); !ok || blocker.HasMarker(latchMarker) == w.self.HasMarker(latchMarker) {
		return nil
	}
	return otherLayout(w.blocker)
}

// newTimer returns a timer for the next doDue, or nil if nothing will be due.
func (w *waiter) newTimer() *time.Timer {
	until := min(w.status.UntilSlow(), w.status.untilOwn(), w.status.untilHolder())
	if w.ownWatch == nil {
		until = min(until, time.Until(w.longWaitAt))
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
	if time.Until(w.longWaitAt) > 0 {
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

// warnIfOwnHold warns once of a wait for a lock that the same client held for ownAfter. Either another goroutine of the process
// holds the lock, or the caller waits for itself, because it did not pass on the context of the lease.
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
