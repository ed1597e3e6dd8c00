package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// removal is a guaranteed delete, which continues in the background until the server has confirmed that the
// znode is gone, or the session is closed.
type removal struct {
	s     *Session
	path  string
	owner int64         // the session to which the znode belongs
	done  chan struct{} // closed once the znode is known to be gone

	// Guarded by Session.mu.
	failure error // of the latest attempt
}

// newRemovalLocked returns the guaranteed delete of a znode of this session; the caller has to begin the
// removal. The session counts as in use until the removal ends. A delete by name can't hit the znode of
// another, because the session's names have a uuid.
func newRemovalLocked(s *Session, path string) *removal {
	delete(s.keeper.nodes, path)
	s.keeper.retainLocked()
	return &removal{s: s, path: path, owner: s.link.latestIDLocked(), done: make(chan struct{})}
}

// begin sends the delete, and needs a goroutine only if the delete fails.
func (r *removal) begin() {
	s := r.s
	s.mu.Lock()
	if !s.link.isConnected || s.link.conn == nil || s.life.isSealedLocked() {
		r.goOnLocked(nil)
		s.mu.Unlock()
		return
	}
	t := s.gate.admitLocked(1)
	s.mu.Unlock()
	c := deleteCall(r.path, anyVersion)
	c.removal = r
	s.gate.sendAdmitted(t, c)
}

// onAnsweredLocked handles the answer to the delete of begin.
func (r *removal) onAnsweredLocked(err error) {
	s := r.s
	if !isGone(err) {
		r.goOnLocked(err)
		return
	}
	s.budget.Free(r.path)
	close(r.done)
	s.keeper.releaseLocked()
}

// goOnLocked repeats the delete until the znode is gone. failure is the failure of the first attempt, nil if
// none was made.
func (r *removal) goOnLocked(failure error) {
	s := r.s
	if !s.backgroundLocked(func(ctx context.Context) {
		if r.deleteUntilGone(ctx, failure) == nil {
			close(r.done)
		}
		s.Release()
	}) {
		s.keeper.releaseLocked()
	}
}

// RemoveLater begins the guaranteed delete of a znode of this session, and adds the delete to the leftovers of
// ctx. done is closed once the server has confirmed that the znode is gone.
func (s *Session) RemoveLater(ctx context.Context, path string) (done <-chan struct{}) {
	s.mu.Lock()
	r := newRemovalLocked(s, path)
	s.mu.Unlock()
	trackDeletion(ctx, r.done)
	r.begin()
	return r.done
}

// RemoveTwin is RemoveLater for another znode of the create that made the znode at path.
func (s *Session) RemoveTwin(ctx context.Context, path, twin string) {
	s.budget.AddTwin(path, twin)
	s.RemoveLater(ctx, twin)
}

// removeAndWait is the guaranteed delete within a task of the session.
func removeAndWait(ctx context.Context, s *Session, path string) {
	s.mu.Lock()
	r := &removal{s: s, path: path, owner: s.link.latestIDLocked()}
	s.mu.Unlock()
	_ = r.deleteUntilGone(ctx, nil) // logged there; only the end of the session stops it
}

// deleteUntilGone repeats a delete until the znode is gone, or the znode's session has expired. An error means
// that ctx has ended or the session is closed. failure is the failure of an earlier attempt, nil if none was
// made.
func (r *removal) deleteUntilGone(ctx context.Context, failure error) error {
	s := r.s
	_, err := repeatCleanUp(ctx, s, r.owner, func(err error) { r.recordFailure(ctx, err) }, func() (struct{}, error) {
		err := failure
		if failure = nil; err == nil {
			c := deleteCall(r.path, anyVersion)
			c.isCleanUp = true
			_, err = s.gate.run(ctx, c)
		}
		if isGone(err) {
			err = nil
		}
		return struct{}{}, err
	})
	if err == nil {
		s.budget.Free(r.path)
	}
	return err
}

// repeatCleanUp repeats a step that removes znodes of a session, or searches for them, until the step succeeds.
// An error means that ctx has ended or the session is closed. Refusals are repeated too, with pauses growing to
// 30 s, because a permission may come back. A failed step counts as done when owner, the session of the znodes,
// has expired: then the result is the zero T. onFailure gets each failure.
func repeatCleanUp[T any](ctx context.Context, s *Session, owner int64, onFailure func(error), step func() (T, error)) (T, error) {
	policy := s.cfg.Retry.Patient()
	mayRepeat := func(err error) bool { return !errors.Is(err, zkutil.ErrClosed) && ctx.Err() == nil }
	mayPass := func(err error) bool {
		return mayRepeat(err) && !zkutil.IsRefused(err) && !errors.Is(err, zkutil.ErrUnsupported)
	}
	return zkutil.RepeatWhile(ctx, policy.AfterRefusals(), mayRepeat, func() (T, error) {
		return zkutil.RepeatWhile(ctx, policy, mayPass, func() (T, error) {
			result, err := step()
			if err != nil && s.link.isDoneByExpiry(owner, err) {
				var none T
				return none, nil
			}
			if err != nil {
				onFailure(err)
			}
			return result, err
		})
	})
}

// isDoneByExpiry reports whether a failed clean-up is no longer needed, because the server has removed the
// znodes with their session.
func (l *link) isDoneByExpiry(owner int64, err error) bool {
	return (zkutil.IsRefused(err) || !zkutil.IsTransient(err)) && l.hasOtherSessionThan(owner) && !l.mayOldSessionLive()
}

// mayOldSessionLive reports whether the session before may still have its znodes, because it has ended for this client alone.
func (l *link) mayOldSessionLive() bool {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.IsBound() && s.clock.Now().Sub(l.changedAt) < 2*s.ledger.Timeout()
}

// recordFailure records why an attempt to delete failed, and logs the failure unless the previous attempt
// failed the same way.
func (r *removal) recordFailure(ctx context.Context, err error) {
	s := r.s
	s.mu.Lock()
	before := r.failure
	r.failure = err
	s.mu.Unlock()
	if ctx.Err() == nil && (before == nil || before.Error() != err.Error()) {
		s.Log(refusalLevel(err), "delete failed, will be repeated", "znode", r.path, "err", err)
	}
}

// isGone reports whether the answer to a delete says that the znode is gone.
func isGone(err error) bool { return err == nil || errors.Is(err, zk.ErrNoNode) }

// refusalLevel returns the log level for a failure that is repeated: Error if somebody has to change a
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
	return s.link.whyUnavailable()
}

// Leftovers are the deletions left to the background by calls, for callers that wait for the deletions later. A
// call finds its Leftovers in the context.
type Leftovers struct {
	mu      sync.Mutex // protects the field below
	pending []<-chan struct{}
}

type leftoversKey struct{}

// Add adds a deletion that has ended once done is closed.
func (l *Leftovers) Add(done <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(slices.DeleteFunc(l.pending, isDone), done)
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// pendingDeletions returns the deletions that may still go on.
func (l *Leftovers) pendingDeletions() []<-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.pending)
}

// WithLeftovers derives a context whose calls add their deletions to l.
func WithLeftovers(ctx context.Context, l *Leftovers) context.Context {
	return context.WithValue(ctx, leftoversKey{}, l)
}

// Await waits until all deletions have ended, for an operation timeout at most. The timeout counts from the
// first of several waits without an answer from a server: see silence. Afterwards the error says why the
// deletions go on.
func (l *Leftovers) Await(s *Session) error {
	beganAt := time.Now()
	for _, done := range l.pendingDeletions() {
		if err := s.silence.awaitDeletion(done, beganAt); err != nil {
			return err
		}
	}
	return nil
}

// awaitDeletion waits for one of several deletions, whose wait began at beganAt.
func (q *silence) awaitDeletion(done <-chan struct{}, beganAt time.Time) error {
	s := q.s
	if isDone(done) || s.life.open.Err() != nil {
		return nil // the znode is gone, or goes with the session
	}
	timer := s.timers.start(time.Until(q.deadline(beganAt)))
	defer s.timers.stop(timer)
	select {
	case <-done:
	case <-s.life.open.Done():
		return nil // as above
	case <-timer.C:
	}
	if q.endWait(done) {
		return nil
	}
	return q.notDeleted(s.link.whyUnavailable())
}

// trackDeletion adds a deletion to the leftovers of ctx, if any.
func trackDeletion(ctx context.Context, done <-chan struct{}) {
	if l, ok := ctx.Value(leftoversKey{}).(*Leftovers); ok {
		l.Add(done)
	}
}

// beginDeletion is trackDeletion for a deletion that ends when end is called.
func beginDeletion(ctx context.Context) (end func()) {
	done := make(chan struct{})
	trackDeletion(ctx, done)
	return func() { close(done) }
}

// silence is the time for which callers have waited for deletions without an answer to any write. All waits
// share one budget: the operation timeout counts from the first of these waits. So a program that gives up many
// elections and leases without a server waits once, not once for each. Guarded by Session.mu.
type silence struct {
	s     *Session
	since time.Time // when the first wait began after the latest answer to a write; zero: no wait has begun
}

// endLocked records that the server has answered a write, or that the session is another one.
func (q *silence) endLocked() { q.since = time.Time{} }

// deadlineLocked returns until when to wait for a deletion, for a caller whose wait began at beganAt. A new
// connection gets the time of a heartbeat for the first answer.
func (q *silence) deadlineLocked(beganAt time.Time) time.Time {
	s := q.s
	full := beganAt.Add(s.cfg.OperationTimeout)
	if q.since.IsZero() {
		q.since = beganAt
	}
	deadline := zkutil.Earliest(full, q.since.Add(s.cfg.OperationTimeout))
	if s.link.isConnected {
		deadline = zkutil.Latest(deadline, s.clock.Local(s.link.changedAt).Add(s.ledger.Period()))
	}
	return zkutil.Earliest(deadline, full)
}

// endWait reports whether the znode is gone after a wait. A deleted znode ends the silence: the deletion may
// have been answered just before the wait began.
func (q *silence) endWait(done <-chan struct{}) (isGone bool) {
	s := q.s
	if !isDone(done) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q.endLocked()
	return true
}

func (q *silence) deadline(beganAt time.Time) time.Time {
	s := q.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return q.deadlineLocked(beganAt)
}

// notDeleted returns the error of a wait that has reached its deadline. why is the reason why the znode still
// exists.
func (q *silence) notDeleted(why error) error {
	return fmt.Errorf("%w after %v, deletion goes on: %w", zkutil.ErrNodeNotDeleted, q.s.cfg.OperationTimeout, why)
}

// Leaving is an entry given up: see Entry.BeginLeave. The deletion of the znode goes on whether or not anybody
// waits. The zero value has nothing to wait for.
type Leaving struct {
	err     error    // of an entry that had ended before, in addition to what the wait finds
	removal *removal // nil: there is nothing to wait for
	beganAt time.Time
}

func newLeaving(r *removal) Leaving {
	return Leaving{removal: r, beganAt: time.Now()}
}

// Await returns the error of Leave once the znode is gone, at the latest an operation timeout after the
// deletion has begun, or after the first of several waits without an answer from a server: see silence. So a
// caller that awaits several deletions, one after the other, waits no longer than for a single deletion. If
// stop is closed first, the error is nil. stop may be nil.
func (l Leaving) Await(stop <-chan struct{}) error {
	r := l.removal
	if r == nil || isDone(r.done) {
		return l.err
	}
	s := r.s
	timer := s.timers.start(time.Until(s.silence.deadline(l.beganAt)))
	defer s.timers.stop(timer)
	isStopped := false
	select {
	case <-r.done:
	case <-s.life.open.Done():
		return zkutil.Both(l.err, zkutil.ErrClosed)
	case <-stop:
		isStopped = true
	case <-timer.C:
	}
	if s.silence.endWait(r.done) || isStopped {
		return l.err
	}
	return zkutil.Both(l.err, s.silence.notDeleted(r.whyNotDeleted()))
}

// AwaitAfterWork is Await for a caller whose work is done, so that a pending deletion is not an error of the
// work: the log gets a record instead. AwaitAfterWork also stops waiting as soon as a hold would have ended,
// with its trust or its connection. The error only says that the hold was lost before being given up.
func (l Leaving) AwaitAfterWork(stop <-chan struct{}) error {
	r := l.removal
	if r == nil || isDone(r.done) {
		return l.err
	}
	s := r.s
	if isDone(stop) { // the server has had no time to answer yet
		s.Background(func(ctx context.Context) { l.recordUnlessGone(ctx, s.keeper.beatPeriod()) })
		return l.err
	}
	if !l.awaitWhileHeld(stop) {
		r.recordPending(l.beganAt)
	}
	return l.err
}

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

// recordPending logs that a deletion goes on although nobody waits any more.
func (r *removal) recordPending(beganAt time.Time) {
	s := r.s
	s.Log(slog.LevelWarn, "znode not deleted yet, deletion goes on",
		"znode", r.path, "after", time.Since(beganAt).Round(time.Millisecond), "err", r.whyNotDeleted())
}

// awaitWhileHeld reports whether the wait is over without a record: the znode is gone, or the session closes.
// The wait is as long as Await's, and ends when a hold could no longer stand.
func (l Leaving) awaitWhileHeld(stop <-chan struct{}) bool {
	r, s := l.removal, l.removal.s
	timer := s.timers.start(time.Hour)
	defer s.timers.stop(timer)
	for {
		s.mu.Lock()
		until, changed := s.silence.deadlineLocked(l.beganAt), (<-chan struct{})(nil)
		if s.ledger.Timeout() > 0 {
			until = zkutil.Earliest(until, s.clock.Local(s.ledger.Until()))
		}
		isHeld := s.link.id == r.owner
		if s.cfg.SuspendEnds {
			isHeld, changed = isHeld && s.link.isConnected, s.link.changes.ChangedLocked()
		}
		s.mu.Unlock()
		left := time.Until(until)
		if !isHeld || left <= 0 {
			return s.silence.endWait(r.done)
		}
		timer.Reset(left)
		select {
		case <-r.done:
			return s.silence.endWait(r.done)
		case <-s.life.open.Done():
			return true
		case <-stop:
			return s.silence.endWait(r.done)
		case <-changed:
		case <-timer.C: // trust may have been renewed meanwhile
		}
	}
}
