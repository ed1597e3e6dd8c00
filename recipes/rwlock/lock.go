package rwlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

func init() {
	recipe.RegisterQueue(func(ctx context.Context, l *Lock) *queue.Queue {
		carries := func(other *Lock) bool { return session.HoldOf(ctx, other.base.Queue.HoldKey()) != nil }
		if l.base.Queue == nil || carries(&l.pair.read) || carries(&l.pair.write) || l.checkLayout(ctx) != nil {
			return nil
		}
		return l.base.Queue
	})
}

// Lock is the read lock or the write lock of an [InterProcessReadWriteLock].
type Lock struct {
	base      recipe.Base
	pair      *InterProcessReadWriteLock
	isChecked *atomic.Bool         // whether the layout of the path was checked
	onRevoked func(*recipes.Lease) // may be nil
	callbacks *callbacks.Order     // runs onRevoked
}

// Acquire blocks until the lock is held, and returns the lease. The context bounds only the wait. The lease remains
// valid when ctx ends.
//
// With a context that carries this lock's hold, Acquire re-enters at once. With a context that carries a hold of the
// write lock, Acquire of the read lock does not wait either (see "Downgrading" in the package documentation). In this
// case Acquire does not wait for room in a full session, and may return ErrSessionFull.
//
// The error is
//
//   - a *recipes.WaitError, which matches ErrNotAcquired and the error of ctx, if ctx ends first: before
//     the call or during the wait, with or without a hold;
//   - ErrUpgrade from the write lock, if ctx carries a valid hold of the read lock and none of the write lock, even if
//     ctx ended;
//   - the cause of the end, if ctx carries an ended hold of either lock;
//   - ErrOtherLayout, if the path has contenders of another kind of lock at the first call;
//   - ErrClosed, ErrSequenceExhausted, or ErrSessionFull;
//   - a server error, or the last error when the retry policy gives up. For zk.ErrNoAuth the text names
//     the znode whose ACL refuses.
//
// After an error the znode of the attempt is deleted, if necessary in the background.
func (l *Lock) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return l.acquireLease(ctx, "acquire", true)
}

// TryAcquire is Acquire without waiting for other contenders. If it would have to wait for a contender,
// TryAcquire deletes its own znode and fails with a *recipes.WaitError, which matches ErrNotAcquired. It
// still waits for the server's answers: use ctx to bound this wait. If ctx ends first, the error also
// matches the error of ctx.
func (l *Lock) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return l.acquireLease(ctx, "try acquire", false)
}

func (l *Lock) acquireLease(ctx context.Context, op string, mayWait bool) (*recipes.Lease, error) {
	if err := l.base.Check(op); err != nil {
		return nil, err
	}
	acquisition := l.base.Queue.BeginAcquisition(ctx, !mayWait, 0)
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

// enter re-enters the hold that ctx carries, or acquires a new hold. That is the read lock under the write lock if ctx
// carries a hold of the write lock.
func (l *Lock) enter(ctx context.Context, mayWait bool, a *trace.Acquisition) (entry *session.Entry, isNewHold bool, err error) {
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
			entry, err = l.base.Queue.Acquire(ctx, mayWait, a)
		}
	}
	return entry, isNewHold, err
}

// refuseReader returns the error of the write lock for a context without a hold of the write lock, or
// with a hold that err prevents from being re-entered: ErrUpgrade if the context carries a valid hold
// of the read lock. A context with an ended hold of the write lock counts as a context without a hold.
func (l *Lock) refuseReader(ctx context.Context, err error) error {
	if _, isInterrupted := zkutil.AsType[*queue.InterruptedError](err); isInterrupted {
		return err // the hold of the write lock is valid
	}
	refusal := l.pair.read.base.Queue.Refuse(ctx, ErrUpgrade)
	if err == nil || errors.Is(refusal, ErrUpgrade) {
		return refusal
	}
	return err
}

// acquireUnderWriter acquires the read lock for the holder of the write lock. Both results are nil if
// ctx carries no hold of the write lock.
func (l *Lock) acquireUnderWriter(ctx context.Context) (*session.Entry, error) {
	writer, err := l.pair.write.base.Queue.Reenter(ctx)
	if writer == nil {
		return nil, err
	}
	entry, err := l.base.Queue.AcquireUnder(ctx, writer)
	// If the write lock was released meanwhile, this entry is the last one. Then a deletion that outlasts ctx continues
	// in the background, and a failure is logged. The hold's own Release and context report a loss of the hold.
	_ = writer.BeginLeave().Await(ctx.Done())
	return entry, err
}

// checkLayout fails if the path belongs to another kind of lock. It asks the server again until a check passes.
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

// Do acquires the lock, calls fn, and releases the lock. ctx bounds both the wait and the work. A deadline meant for
// the wait also ends the work. Use [Lock.DoWithin] to bound the wait alone.
//
// The context passed to fn re-enters. It ends with the lease, with ctx, or when fn returns. It has the
// deadline and the cause of ctx. If fn panics, Do releases the lock and re-panics.
//
// Do returns an error whose text is one line. errors.Is finds in it
//
//   - the loss of the lease, if the lease was lost (ErrSessionLost, ErrSuspended, ErrNodeDeleted,
//     ErrClosed), followed by fn's error, which may be the Canceled of its context;
//   - otherwise fn's error, unchanged;
//   - the error of Acquire, if the lock was not acquired and fn was not called.
//
// Do returns when the znode is deleted, so that others can have the lock. Do does not wait for the deletion beyond the
// end of ctx, nor beyond the time until which the lease was trusted, nor beyond the operation timeout. After that the
// deletion continues in the background, and the client logs a record at Warn.
func (l *Lock) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error {
	return recipe.Do(ctx, l.base.OpError, l.Acquire, recipe.EndWork, fn)
}

// DoWithin is Do with a separate bound for the acquisition: wait bounds the wait for the lock, and ctx
// the work and the call as a whole. If the lock was not acquired within wait, or before the end of ctx,
// the error has a *recipes.WaitError, and fn was not called.
//
// With a wait of 0 or less, DoWithin does not wait for other contenders, like TryAcquire. DoWithin still
// waits for the server's answers: use ctx to bound this wait.
func (l *Lock) DoWithin(ctx context.Context, wait time.Duration, fn func(context.Context, *recipes.Lease) error) error {
	return recipe.Do(ctx, l.base.OpError, recipe.Within(wait, l.Acquire, l.TryAcquire), recipe.EndWork, fn)
}

// Participants returns the contenders that hold or wait for this lock, in queue order: readers from the read lock,
// writers from the write lock. Leader is true for contenders that need not wait. The result is a snapshot, without
// contenders that leave while it is taken.
func (l *Lock) Participants(ctx context.Context) ([]recipes.Participant, error) {
	return l.base.Participants(ctx)
}
