package recipe

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Lease has the methods of a lease that Do needs.
type Lease interface {
	Context() context.Context
}

// Do acquires a lease, calls fn, and releases the lease, even if fn panics. It waits until others can have the lock, but no longer than
// until ctx ends or until trust in a lease would end. See InterProcessMutex.Do, which is the same for every lock.
//
// opError returns an error with the operation and the path as prefix. endWork begins the release (see EndWork). While fn runs, Close
// and Shutdown of the clients wait, and the znodes stay (see session.Entry.BeginWork).
func Do[L Lease](
	ctx context.Context, opError func(op string, err error) *recipes.OpError, acquire func(context.Context) (L, error),
	endWork func(L) (await func(stop <-chan struct{}) error), fn func(context.Context, L) error,
) (err error) {
	if fn == nil {
		return opError("do", zkutil.Invalid(errors.New("nil function")))
	}
	lease, err := acquire(ctx)
	if err != nil {
		return err
	}
	parts := partsOf(lease)
	finish, err := BeginWork(parts...)
	if err != nil { // closed since the acquisition
		_ = endWork(lease)(ctx.Done())
		return opError("do", err)
	}
	inner, end := newWorkContext(ctx, lease.Context())
	endWatch := watchWork(inner, parts) //nolint:contextcheck // a lease has a context of its own
	defer func() {
		endWatch()
		end(recipes.ErrReleased)
		err = resultOf(opError, err, endWork(lease)(ctx.Done()))
		finish()(ctx.Done())
	}()
	zkutil.RunUserCode(func() { err = fn(inner, lease) }, scopesOf(parts)...) //nolint:contextcheck // as above
	return err
}

// Within returns an acquisition within wait. Without a wait it only tries. See InterProcessMutex.DoWithin.
func Within[L Lease](wait time.Duration, acquire, tryAcquire func(context.Context) (L, error)) func(context.Context) (L, error) {
	return func(ctx context.Context) (L, error) {
		if wait <= 0 {
			return tryAcquire(ctx)
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		return acquire(ctx)
	}
}

// NotCalledError is the error of a recipe that acquired the lease but does not call the user's function. Do returns Err as its
// own.
type NotCalledError struct{ Err error }

func (e *NotCalledError) Error() string { return e.Err.Error() }
func (e *NotCalledError) Unwrap() error { return e.Err }

// resultOf returns the error of Do, given the errors of fn and of endWork.
func resultOf(opError func(string, error) *recipes.OpError, err, released error) error {
	isHeld := released == nil || errors.Is(released, recipes.ErrNotHeld)
	notCalled, isNotCalled := err.(*NotCalledError) //nolint:errorlint // the recipe's own, not one returned by the user's function
	switch {
	case isNotCalled && isHeld:
		return opError("do", notCalled.Err)
	case isNotCalled:
		return opError("do", zkutil.Both(errors.Unwrap(released), notCalled.Err))
	case isHeld:
		return err // for ErrNotHeld: fn released the lease, and its Release returned any loss
	default:
		return opError("do", zkutil.LossAndError(errors.Unwrap(released), err))
	}
}

// partsOf returns the single leases that a lease of Do consists of.
func partsOf(lease Lease) []*recipes.Lease {
	switch l := lease.(type) {
	case *recipes.Lease:
		return []*recipes.Lease{l}
	case interface{ Leases() []*recipes.Lease }:
		return l.Leases()
	default:
		return nil
	}
}

// BeginWork registers the function of Do that is about to run under leases (see session.Entry.BeginWork). It fails with ErrClosed
// if a client is closed.
func BeginWork(parts ...*recipes.Lease) (end func() (await func(stop <-chan struct{})), err error) {
	var ends []func() func(<-chan struct{})
	end = func() func(<-chan struct{}) {
		var awaits []func(<-chan struct{})
		for _, endPart := range ends {
			awaits = append(awaits, endPart())
		}
		return func(stop <-chan struct{}) {
			for _, await := range awaits {
				await(stop)
			}
		}
	}
	for _, part := range parts {
		endPart, err := private.Entry(part).BeginWork()
		if err != nil {
			end()
			return nil, err
		}
		ends = append(ends, endPart)
	}
	return end, nil
}

// watchWork logs warnings while the function of Do continues after the end of its context, until stop is called. A
// warning is about the lease that was lost, or otherwise the first.
func watchWork(ctx context.Context, parts []*recipes.Lease) (stop func()) {
	return session.WatchWork(ctx, func() *session.Entry {
		for _, part := range parts {
			if entry := private.Entry(part); entry.Loss() != nil {
				return entry
			}
		}
		return private.Entry(parts[0])
	}, nil)
}

// scopesOf returns the scopes of the clients of leases, in which Close does not wait for its caller.
func scopesOf(parts []*recipes.Lease) (scopes []zkutil.Scope) {
	for _, part := range parts {
		if scope := private.Entry(part).Scope(); !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// workContext is the context of Do's function. It has the deadline of Do's own context, and ends with
// Do's context, with the same error and cause. It has the values of the lease's context, and ends with
// the lease, too.
//
// A context can't be the child of two contexts. So workContext derives from Do's context, because only a child has
// the error and the cause of a deadline. The end of the lease follows in a function of context.AfterFunc; an earlier
// caller of Err or Value ends the context itself.
type workContext struct {
	context.Context // ends with Do's own context

	lease  context.Context //nolint:containedctx // the lease's
	values context.Context //nolint:containedctx // the lease's, which never ends: package context looks for causes among the values
	cancel context.CancelCauseFunc
}

// newWorkContext returns the context for the work under a lease. end ends the context, with cause unless it is
// already over.
func newWorkContext(ctx, lease context.Context) (c *workContext, end context.CancelCauseFunc) {
	c = &workContext{lease: lease, values: context.WithoutCancel(lease)}
	c.Context, c.cancel = context.WithCancelCause(ctx)
	unbind := context.AfterFunc(lease, c.endWithLease)
	return c, func(cause error) {
		unbind()
		c.endWithLease()
		c.cancel(cause)
	}
}

// EndWorkContext ends the context of a function of Do that returned. Do does the same before it releases the lease. A recipe that gives
// the lease up by itself calls EndWorkContext before.
func EndWorkContext(ctx context.Context) {
	c := ctx.(*workContext) //nolint:forcetypeassert // see Do
	c.endWithLease()
	c.cancel(recipes.ErrReleased)
}

// endWithLease ends the context if the lease is over.
func (c *workContext) endWithLease() {
	if c.lease.Err() != nil {
		c.cancel(context.Cause(c.lease))
	}
}

// Err returns why the context ended, or nil if it did not.
func (c *workContext) Err() error {
	c.endWithLease()
	return c.Context.Err()
}

// Value returns a value of the lease's context. For the internal keys of package context, it returns the
// value of Do's own context.
func (c *workContext) Value(key any) any {
	c.endWithLease()
	if value := c.values.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}
