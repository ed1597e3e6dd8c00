package rwlock

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// Lock is one of the two locks of an [InterProcessReadWriteLock].
type Lock struct {
	base      recipe.Base
	pair      *InterProcessReadWriteLock
	isChecked *atomic.Bool         // the layout of the path
	onRevoked func(*recipes.Lease) // may be nil
	callbacks *session.Callbacks   // of onRevoked
}

// Acquire blocks until the lock is held, and returns the lease. The context bounds only the wait: the
// lease remains valid when ctx ends.
//
// With a context that carries this lock's hold, Acquire re-enters at once. With one that carries a
// hold of the write lock, Acquire of the read lock does not wait either: see the package's text about
// downgrading. It does not wait for room in a full session either, so it may get ErrSessionFull.
//
// The error is
//
//   - a *recipes.WaitError, which matches the error of ctx, if ctx ends first: before the call or
//     while it waits, with or without a hold;
//   - ErrUpgrade from the write lock, if ctx carries a hold of the read lock that stands, and none of
//     the write lock, also if ctx has ended;
//   - the cause of the end, if ctx carries a hold of either lock that has ended;
//   - ErrOtherLayout, if the path has contenders of another kind of lock at the first call;
//   - ErrClosed, ErrSequenceExhausted, or ErrSessionFull;
//   - an error of the server, or the last one when the retry policy gives up. For zk.ErrNoAuth the
//     text names the znode whose ACL refuses.
//
// After an error the znode of the attempt is deleted, if necessary in the background.
func (l *Lock) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return l.acquireLease(ctx, "acquire", true)
}

// TryAcquire is Acquire without the wait for other contenders. If it would have to wait for one,
// TryAcquire deletes its own znode and returns ErrNotAcquired. It still waits for the server's
// answers: bound it by ctx. If ctx ends first, it fails with a *recipes.WaitError, as Acquire does.
func (l *Lock) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return l.acquireLease(ctx, "try acquire", false)
}

func (l *Lock) acquireLease(ctx context.Context, op string, mayWait bool) (*recipes.Lease, error) {
	acquisition := l.base.Queue.BeginAcquisition(ctx, !mayWait)
	entry, isNewHold, err := l.enter(ctx, mayWait, acquisition)
	if err := l.base.EndAcquisition(acquisition, op, !isNewHold, err, entry); err != nil {
		return nil, err
	}
	lease := recipe.NewLease(entry)
	if isNewHold && l.onRevoked != nil {
		entry.OnRevoked(l.callbacks, func() { l.onRevoked(lease) })
	}
	return lease, nil
}

// enter re-enters the hold that ctx carries, or else acquires one: the read lock under the write lock if ctx
// carries a hold of that.
func (l *Lock) enter(ctx context.Context, mayWait bool, a *session.Acquisition) (entry *session.Entry, isNewHold bool, err error) {
	entry, err = l.base.Queue.Reenter(ctx)
	switch {
	case entry != nil:
	case l == &l.pair.write:
		err = l.refuseReader(ctx, err)
	case err == nil:
		entry, err = l.acquireUnderWriter(ctx)
		isNewHold = entry != nil
	}
	if entry == nil && err == nil {
		isNewHold = true
		if err = l.checkLayout(ctx); err == nil {
			entry, err = l.base.Queue.AcquireTraced(ctx, mayWait, a)
		}
	}
	return entry, isNewHold, err
}

// refuseReader returns the error of the write lock for a context that carries no hold of it, or one
// that can't be entered because of err: ErrUpgrade if the context carries a hold of the read lock that
// stands. The context of a write lock that has ended is no better than one without it.
func (l *Lock) refuseReader(ctx context.Context, err error) error {
	if _, isInterrupted := errors.AsType[*queue.InterruptedError](err); isInterrupted {
		return err // the hold of the write lock stands
	}
	refusal := l.pair.read.base.Queue.Refuse(ctx, ErrUpgrade)
	if err == nil || errors.Is(refusal, ErrUpgrade) {
		return refusal
	}
	return err
}

// acquireUnderWriter acquires the read lock for the holder of the write lock. Both results are nil if
// ctx carries no hold of that.
func (l *Lock) acquireUnderWriter(ctx context.Context) (*session.Entry, error) {
	writer, err := l.pair.write.base.Queue.Reenter(ctx)
	if writer == nil {
		return nil, err
	}
	entry, err := l.base.Queue.AcquireUnder(ctx, writer)
	// This is the last entry if the write lock was released meanwhile. Then a deletion that outlasts ctx goes
	// on, and a failure is logged. The loss of a hold is reported by its own Release and context.
	_ = writer.BeginLeave().Await(ctx.Done())
	return entry, err
}

// checkLayout fails if the path belongs to another kind of lock. It asks the server until it has once
// seen that the path does not.
func (l *Lock) checkLayout(ctx context.Context) error {
	if l.isChecked.Load() {
		return nil
	}
	err := l.base.Queue.CheckLayout(ctx)
	if err == nil {
		l.isChecked.Store(true)
	}
	return err
}

// Do acquires the lock, calls fn, and releases the lock. The context that fn gets re-enters. It ends
// with the lease, with ctx, or when fn returns. If fn panics, Do releases the lock and panics on.
//
// Do returns an error in one line of text. errors.Is finds in it
//
//   - the loss of the lease if there was one (ErrSessionLost, ErrSuspended, ErrNodeDeleted,
//     ErrClosed), followed by fn's error, which may be the Canceled of its context;
//   - otherwise fn's error, unchanged, followed by ErrNodeNotDeleted if the release has failed;
//   - the error of Acquire, if the lock was not acquired and fn was not called.
func (l *Lock) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error {
	return recipe.Do(ctx, l.base.OpError, l.Acquire, fn)
}

// Participants returns the contenders that hold or wait for this lock, in queue order: readers from the
// read lock, writers from the write lock. Leader is true for those who wait for nobody. It is a
// snapshot: a contender that leaves while it is taken is left out.
func (l *Lock) Participants(ctx context.Context) ([]recipes.Participant, error) {
	return l.base.Participants(ctx)
}
