package recipe

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Lease is what Do needs of a lease.
type Lease interface {
	Context() context.Context
	Release() error
}

// Do acquires a lease, calls fn, and releases the lease. See InterProcessMutex.Do, which is the same
// for every lock. opError returns an error with the operation and the path before it.
func Do[L Lease](
	ctx context.Context, opError func(op string, err error) *recipes.OpError,
	acquire func(context.Context) (L, error), fn func(context.Context, L) error,
) (err error) {
	if fn == nil {
		return opError("do", zkutil.Invalid(errors.New("nil function")))
	}
	lease, err := acquire(ctx)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(lease.Context())
	deadline, hasDeadline := ctx.Deadline()
	unbind := context.AfterFunc(ctx, func() {
		if !hasDeadline || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(ctx))
		}
	})
	if hasDeadline { // so that fn sees the deadline, and errors of it are DeadlineExceeded
		var stop context.CancelFunc
		inner, stop = context.WithDeadline(inner, deadline)
		defer stop()
	}
	defer func() {
		unbind()
		cancel(recipes.ErrReleased)
		err = resultOfDo(opError, err, lease.Release())
	}()
	return fn(inner, lease) //nolint:contextcheck // the lease's context has the values of ctx
}

// resultOfDo returns the error of Do, given those of its function and of Release.
func resultOfDo(opError func(op string, err error) *recipes.OpError, err, released error) error {
	switch {
	case released == nil || errors.Is(released, recipes.ErrNotHeld):
		return err // with ErrNotHeld: fn has released the lease, and its Release has returned a loss
	case errors.Is(released, recipes.ErrNodeNotDeleted):
		return zkutil.Both(err, released)
	default:
		return opError("do", zkutil.LossAndError(errors.Unwrap(released), err))
	}
}
