package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/departures"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// removal is a guaranteed delete, which continues in the background until the server confirms that the
// znode is deleted, or the session is closed.
type removal struct {
	s     *Session
	path  string
	owner int64         // the session to which the znode belongs
	done  chan struct{} // closed once the znode is known to be deleted

	// Guarded by Session.mu.
	failure error // of the latest attempt
}

// newRemovalLocked returns the guaranteed delete of a znode that a session of this client owns; the caller has to begin the
// removal. The session counts as in use until the removal ends. A delete by name can't hit the znode of
// another, because the session's names have a uuid.
func newRemovalLocked(s *Session, path string, owner int64) *removal {
	delete(s.keeper.nodes, path)
	s.keeper.retainLocked()
	return &removal{s: s, path: path, owner: owner, done: make(chan struct{})}
}

// begin sends the delete, and needs a goroutine only if the delete fails.
func (r *removal) begin() {
	s := r.s
	s.mu.Lock()
	if !s.core.IsConnected || s.link.conn == nil || s.core.Phase >= core.Sealed {
		r.goOnLocked(nil)
		s.mu.Unlock()
		return
	}
	t := s.gate.admitLocked(1)
	s.mu.Unlock()
	c := deleteCall(r.path, anyVersion)
	c.taker = r
	s.gate.sendAdmitted(t, c)
}

// takeLocked takes the answer to the delete of begin.
func (r *removal) takeLocked(_ *call, a wire.Answer) {
	s := r.s
	if !isGone(a.Err) {
		r.goOnLocked(a.Err)
		return
	}
	s.budget.Free(r.path)
	close(r.done)
	s.keeper.releaseLocked()
}

// goOnLocked repeats the delete until the znode is deleted. failure is the failure of the first attempt, nil if
// none was made.
func (r *removal) goOnLocked(failure error) {
	s := r.s
	_, name := zkutil.Split(r.path)
	departure := departures.Departure{Set: s.departing, Name: name}
	departure.Begin()
	if !s.backgroundLocked(func(ctx context.Context) {
		if r.deleteUntilGone(ctx, failure) == nil {
			close(r.done)
		}
		departure.End()
		s.Release()
	}) {
		departure.End()
		s.keeper.releaseLocked()
	}
}

// RemoveLater begins the guaranteed delete of a znode of this session, and adds the delete to the leftovers of
// ctx. done is closed once the server confirms that the znode is deleted.
func (s *Session) RemoveLater(ctx context.Context, path string) (done <-chan struct{}) {
	s.mu.Lock()
	r := newRemovalLocked(s, path, s.core.ID)
	s.mu.Unlock()
	leftovers.Track(ctx, r.done)
	r.begin()
	return r.done
}

// RemoveTwin is RemoveLater for another znode of the create that made the znode at path.
func (s *Session) RemoveTwin(ctx context.Context, path, twin string) {
	s.budget.AddTwin(path, twin)
	s.RemoveLater(ctx, twin)
}

// RemoveLateCreate deletes the znode at path a session timeout from now. It follows the delete of a znode whose create was not answered, because
// the server may execute the create after the delete, as with expectLateTwins.
func (s *Session) RemoveLateCreate(path string) {
	s.afterTimeout(func(ctx context.Context) { s.RemoveInTask(ctx, path) })
}

// RemoveInTask is the guaranteed delete for a task of the session. It returns once the znode is deleted or ctx ends.
func (s *Session) RemoveInTask(ctx context.Context, path string) {
	s.mu.Lock()
	r := &removal{s: s, path: path, owner: s.core.ID}
	s.mu.Unlock()
	_ = r.deleteUntilGone(ctx, nil) // logged there; only the end of the session stops it
}

// deleteUntilGone repeats a delete until the znode is deleted, or the znode's session expires. An error means
// that ctx ended or the session is closed. failure is that of an earlier attempt, nil for none.
func (r *removal) deleteUntilGone(ctx context.Context, failure error) error {
	s := r.s
	_, err := RepeatCleanUp(ctx, s, r.owner, func(err error) { s.LogDeleteFailure(r.path, err) }, func(ctx context.Context) (struct{}, error) {
		err := failure
		if failure = nil; err == nil {
			_, err = s.gate.run(ctx, deleteCall(r.path, anyVersion))
		}
		if isGone(err) {
			return struct{}{}, nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		r.failure = err
		return struct{}{}, err
	})
	if err == nil {
		s.budget.Free(r.path)
	}
	return err
}

// RepeatCleanUp repeats a step that removes znodes of a session, or searches for them, until the step succeeds. The context of the
// step is of Finishing. An error means that ctx ended or the session is closed. Refusals are repeated too, with pauses growing to
// 30 s, because a permission may be granted again. A failed step counts as done when owner, the session of the znodes, is expired.
// Then the result is the zero T. logFailure gets a failure, unless the attempt before failed in the same way.
func RepeatCleanUp[T any](ctx context.Context, s *Session, owner int64, logFailure func(error), step func(ctx context.Context) (T, error)) (T, error) {
	policy := s.cfg.Retry.Patient()
	mayRepeat := func(err error) bool { return !errors.Is(err, zkutil.ErrClosed) && ctx.Err() == nil }
	mayPass := func(err error) bool { return mayRepeat(err) && !zkutil.IsRefused(err) }
	latest := ""
	return zkutil.RepeatWhile(ctx, policy.AfterRefusals(), mayRepeat, func() (T, error) {
		return zkutil.RepeatWhile(ctx, policy, mayPass, func() (T, error) {
			result, err := step(Finishing(ctx))
			if err != nil && s.link.isDoneByExpiry(owner, err) {
				var none T
				return none, nil
			}
			if err != nil && ctx.Err() == nil && latest != err.Error() {
				logFailure(err)
			}
			if err != nil {
				latest = err.Error()
			}
			return result, err
		})
	})
}

// LogDeleteFailure logs why an attempt to delete a znode failed.
func (s *Session) LogDeleteFailure(path string, err error) {
	s.log.Log(refusalLevel(err), "delete failed; retrying", "znode", path, "err", err)
}

// isDoneByExpiry reports whether a failed clean-up is no longer needed, because the server removed the
// znodes with their session.
func (l *link) isDoneByExpiry(owner int64, err error) bool {
	return (zkutil.IsRefused(err) || !zkutil.IsTransient(err)) && l.hasOtherSessionThan(owner) && !l.mayOldSessionLive()
}

// mayOldSessionLive reports whether the session before may still have its znodes, because it ended for this client alone.
func (l *link) mayOldSessionLive() bool {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.MayOldSessionLive(s.clock.Now())
}

// isGone reports whether the answer to a delete says that the znode is deleted.
func isGone(err error) bool { return err == nil || errors.Is(err, zk.ErrNoNode) }

// refusalLevel returns the log level for a failure that is repeated: Error if an operator has to change a
// permission or the like first.
func refusalLevel(err error) slog.Level {
	if zkutil.IsRefused(err) && !zkutil.IsUnknownAnswer(err) {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// whyNotDeleted returns why the znode of a removal still exists.
func (r *removal) whyNotDeleted() error {
	s := r.s
	s.mu.Lock()
	failure := r.failure
	s.mu.Unlock()
	if failure != nil {
		return failure
	}
	return s.WhyUnavailable()
}

// AwaitLeftovers waits until all deletions of l end, for an operation timeout at most. The timeout counts from the
// first of several waits without an answer from a server (see leftovers.Silence). If deletions are still running
// afterwards, the error says why.
func (s *Session) AwaitLeftovers(l *leftovers.List) error {
	beganAt := time.Now()
	for _, done := range l.Pending() {
		err := s.awaitDeletion(done, nil, beganAt, s.WhyUnavailable)
		if errors.Is(err, zkutil.ErrClosed) {
			return nil // the znodes are deleted with the session
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitDeletion waits for one of several deletions, whose wait began at beganAt. If stop is closed first, the error is nil.
// why returns the reason why the znode still exists.
func (s *Session) awaitDeletion(done, stop <-chan struct{}, beganAt time.Time, why func() error) error {
	if zkutil.IsClosed(done) {
		return nil
	}
	if s.life.open.Err() != nil { // even if the deadline has passed
		return zkutil.ErrClosed
	}
	s.mu.Lock()
	deadline := s.deletionDeadlineLocked(beganAt)
	s.mu.Unlock()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-done:
	case <-s.life.open.Done():
		return zkutil.ErrClosed
	case <-stop:
	case <-timer.C:
	}
	if s.endSilence(done) || zkutil.IsClosed(stop) {
		return nil
	}
	return fmt.Errorf("%w after %v, still retrying: %w", zkutil.ErrNodeNotDeleted, s.cfg.OperationTimeout, why())
}

// deletionDeadlineLocked returns until when to wait for a deletion, for a caller whose wait began at beganAt. A new
// connection gets the time of a heartbeat for the first answer.
func (s *Session) deletionDeadlineLocked(beganAt time.Time) time.Time {
	var answerBy time.Time
	if s.core.IsConnected {
		answerBy = s.clock.Local(s.core.ChangedAt).Add(s.core.Period())
	}
	return s.silence.Deadline(beganAt, s.cfg.OperationTimeout, answerBy)
}

// endSilence reports whether a deletion is confirmed after a wait. The confirmation ends the silence, because it may have
// arrived just before the wait began.
func (s *Session) endSilence(done <-chan struct{}) bool {
	if !zkutil.IsClosed(done) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silence.End()
	return true
}

// Leaving is an entry given up, as BeginLeave returns it. The deletion of the znode continues whether or not a caller
// waits. The zero value has nothing to wait for.
type Leaving struct {
	err       error    // of an entry that ended before, in addition to what the wait finds
	overLimit error    // ErrMaxHold, if the contexts of the entry ended at the limit of the hold
	removal   *removal // nil: there is nothing to wait for
	beganAt   time.Time
}

// Await returns the error of Leave once the znode is deleted, at the latest an operation timeout after the
// deletion began, or after the first of several waits without an answer from a server (see leftovers.Silence). So a
// caller that awaits several deletions, one after the other, waits no longer than for a single deletion. If
// stop is closed first, the error is nil. stop may be nil.
func (l Leaving) Await(stop <-chan struct{}) error {
	r := l.removal
	if r == nil {
		return l.err
	}
	return zkutil.Both(l.err, r.s.awaitDeletion(r.done, stop, l.beganAt, r.whyNotDeleted))
}

// AwaitAfterWork is Await for a caller whose work is done, so that a pending deletion is not an error of the
// work. The log gets a record instead. AwaitAfterWork also stops waiting as soon as a hold would end,
// with its trust or its connection. The error only says that the hold was lost before being
// given up, or that the work exceeded the limit of the hold.
func (l Leaving) AwaitAfterWork(stop <-chan struct{}) error {
	r := l.removal
	if r == nil || zkutil.IsClosed(r.done) {
		return l.errAfterWork()
	}
	s := r.s
	if zkutil.IsClosed(stop) { // the server has had no time to answer yet
		s.Background(func(ctx context.Context) { l.recordUnlessGone(ctx, s.BeatPeriod()) })
		return l.errAfterWork()
	}
	if !l.awaitWhileHeld(stop) {
		r.recordPending(l.beganAt)
	}
	return l.errAfterWork()
}

func (l Leaving) errAfterWork() error { return zkutil.Both(l.err, l.overLimit) }

// recordUnlessGone logs a warning if the znode still exists after a while.
func (l Leaving) recordUnlessGone(ctx context.Context, while time.Duration) {
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-l.removal.done:
	case <-ctx.Done():
	case <-timer.C:
		l.removal.recordPending(l.beganAt)
	}
}

// recordPending logs that a deletion is still being retried after its caller stopped waiting.
func (r *removal) recordPending(beganAt time.Time) {
	s := r.s
	s.log.Log(slog.LevelWarn, "znode not deleted yet; retrying",
		"znode", r.path, "after", time.Since(beganAt).Round(time.Millisecond), "err", r.whyNotDeleted())
}

// awaitWhileHeld reports whether the wait is over without a record, because the znode is deleted or the session closes.
// The wait is as long as Await's, and ends when a hold could no longer stand.
func (l Leaving) awaitWhileHeld(stop <-chan struct{}) bool {
	r, s := l.removal, l.removal.s
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		until, changed := s.deletionDeadlineLocked(l.beganAt), (<-chan struct{})(nil)
		until = zkutil.Earliest(until, s.clock.Local(s.core.Until()))
		isHeld := s.core.ID == r.owner
		if s.cfg.SuspendEnds {
			isHeld, changed = isHeld && s.core.IsConnected, s.link.changes.ChangedLocked()
		}
		s.mu.Unlock()
		left := time.Until(until)
		if !isHeld || left <= 0 {
			return s.endSilence(r.done)
		}
		timer.Reset(left)
		select {
		case <-r.done:
			return s.endSilence(r.done)
		case <-s.life.open.Done():
			return true
		case <-stop:
			return s.endSilence(r.done)
		case <-changed:
		case <-timer.C: // trust may be renewed by now
		}
	}
}
