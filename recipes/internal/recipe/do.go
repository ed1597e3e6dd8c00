package recipe

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Lease has the methods of a lease that Do needs.
type Lease interface {
	Context() context.Context
}

// Lock has the functions of a lock that Do and DoWithin need; its leases are of type L.
type Lock[L Lease] struct {
	OpError             func(op string, err error) *recipes.OpError // returns an error with the operation and the path as prefix
	Acquire, TryAcquire func(context.Context) (L, error)
	// EndWork is Release after the work of Do: see the function EndWork.
	EndWork func(L) (await func(stop <-chan struct{}) error)
}

// Do acquires a lease, calls fn, and releases the lease. See InterProcessMutex.Do, which is the same for
// every lock.
func Do[L Lease](ctx context.Context, lock Lock[L], fn func(context.Context, L) error) error {
	return lock.acquireAndWork(ctx, lock.Acquire, fn)
}

// DoWithin is Do with a separate bound for the acquisition. See InterProcessMutex.DoWithin.
func DoWithin[L Lease](ctx context.Context, wait time.Duration, lock Lock[L], fn func(context.Context, L) error) error {
	return lock.acquireAndWork(ctx, func(ctx context.Context) (L, error) { return lock.acquireWithin(ctx, wait) }, fn)
}

func (k Lock[L]) acquireAndWork(
	ctx context.Context, acquire func(context.Context) (L, error), fn func(context.Context, L) error,
) error {
	if fn == nil {
		return k.OpError("do", zkutil.Invalid(errors.New("nil function")))
	}
	lease, err := acquire(ctx)
	if err != nil {
		return err
	}
	return k.work(ctx, lease, fn)
}

// acquireWithin acquires a lease within wait. Without a wait it only tries.
func (k Lock[L]) acquireWithin(ctx context.Context, wait time.Duration) (L, error) {
	if wait <= 0 {
		lease, err := k.TryAcquire(ctx)
		return lease, withoutWait(err)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return k.Acquire(ctx)
}

// withoutWait returns the error of a TryAcquire, wrapped in a *recipes.WaitError if another contender has
// the lock.
func withoutWait(err error) error {
	op, isOp := zkutil.AsType[*recipes.OpError](err)
	if !isOp || !errors.Is(err, recipes.ErrNotAcquired) {
		return err
	}
	return &recipes.OpError{Op: op.Op, Path: op.Path, Err: &recipes.WaitError{Err: op.Err}}
}

// work calls fn and releases the lease, even if fn panics. It waits until others can have the lock, but
// no longer than until ctx ends or until a lease could not have been held any more.
func (k Lock[L]) work(ctx context.Context, lease L, fn func(context.Context, L) error) (err error) {
	endWatch := watchWork(lease) //nolint:contextcheck // a lease has a context of its own
	inner, end := newWorkContext(ctx, lease.Context())
	defer func() {
		endWatch()
		end(recipes.ErrReleased)
		err = k.resultOf(err, k.EndWork(lease)(ctx.Done()))
	}()
	return fn(inner, lease) //nolint:contextcheck // as above
}

// NotCalledError is the error of a recipe that has acquired the lease and does not call the user's function. Do returns Err as its own.
type NotCalledError struct{ Err error }

func (e *NotCalledError) Error() string { return e.Err.Error() }
func (e *NotCalledError) Unwrap() error { return e.Err }

// resultOf returns the error of Do, given the errors of fn and of EndWork.
func (k Lock[L]) resultOf(err, released error) error {
	isHeld := released == nil || errors.Is(released, recipes.ErrNotHeld)
	notCalled, isNotCalled := err.(*NotCalledError) //nolint:errorlint // the recipe's own, not one that the user's function has returned
	switch {
	case isNotCalled && isHeld:
		return k.OpError("do", notCalled.Err)
	case isNotCalled:
		return k.OpError("do", zkutil.Both(errors.Unwrap(released), notCalled.Err))
	case isHeld:
		return err // for ErrNotHeld: fn has released the lease, and its Release has returned any loss
	default:
		return k.OpError("do", zkutil.LossAndError(errors.Unwrap(released), err))
	}
}
