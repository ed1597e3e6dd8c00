package multilock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// Lease is one acquisition of all locks of a multilock. Its methods may be called concurrently.
type Lease struct {
	parts   []*recipes.Lease // in the order of acquisition; not changed after Acquire, as all up to mu
	unbinds []func() bool    // of the parts' contexts
	own     context.Context  //nolint:containedctx // ends with any part; has the values of the acquisition
	cancel  context.CancelCauseFunc
	ctx     context.Context //nolint:containedctx // own, with the values of the last part, which carry all holds

	mu         sync.Mutex // protects what is below
	isReleased bool
}

// newLease returns a lease without parts.
func newLease(ctx context.Context) *Lease {
	l := &Lease{}
	l.own, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.ctx = l.own
	return l
}

// acquirePart acquires the next part. Its context carries the holds of all parts so far. It ends with
// ctx, and with any of these holds.
func (l *Lease) acquirePart(ctx context.Context, acquire func(context.Context) (*recipes.Lease, error)) error {
	waiting, stop := context.WithCancelCause(withValues{ctx, context.WithoutCancel(l.ctx)})
	defer stop(nil)
	defer context.AfterFunc(l.own, func() { stop(context.Cause(l.own)) })() //nolint:contextcheck // a lease has a context of its own
	part, err := acquire(waiting)                                           //nolint:contextcheck // it has the end of ctx and the values of the parts
	if err != nil {
		return err
	}
	l.parts = append(l.parts, part)
	end := func() { l.cancel(context.Cause(part.Context())) }             //nolint:contextcheck // a part has a context of its own
	l.unbinds = append(l.unbinds, context.AfterFunc(part.Context(), end)) //nolint:contextcheck // as above
	l.ctx = withValues{l.own, context.WithoutCancel(part.Context())}
	return nil
}

// loss returns why a part has ended, nil if all stand.
func (l *Lease) loss() error {
	for _, part := range l.parts {
		if cause := context.Cause(part.Context()); cause != nil {
			return cause
		}
	}
	return nil
}

// withValues is a context with the values of another one, which must not be cancellable: package
// context looks for the cause of an end among the values.
type withValues struct {
	context.Context //nolint:containedctx // a context made of two

	values context.Context //nolint:containedctx // as above
}

func (c withValues) Value(key any) any {
	if value := c.values.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}

// Context ends when the context of any part ends, with the same cause, and with ErrReleased at
// Release. It has the values of the context of the acquisition, but neither its deadline nor its
// cancellation. Each part re-enters with it.
func (l *Lease) Context() context.Context { return l.ctx }

// Leases returns the leases of the parts, in the order of the locks. A part that is released on its
// own ends the whole lease with ErrReleased.
func (l *Lease) Leases() []*recipes.Lease { return slices.Clone(l.parts) }

// Release gives all parts back, in reverse order, also after an error. Call it once per Acquire,
// typically with defer. It begins all deletions before it waits for any, so it waits for one operation
// timeout at most, however many parts there are. It returns
//
//   - nil when all parts are given back;
//   - the errors of the parts' Release: for a part that was lost the cause, ErrNodeNotDeleted for one
//     whose deletion goes on in the background;
//   - ErrNotHeld when called again.
//
// The context has ended when Release returns, also after an error.
func (l *Lease) Release() error {
	l.mu.Lock()
	isAgain := l.isReleased
	l.isReleased = true
	l.mu.Unlock()
	if isAgain {
		return opError("release", recipes.ErrNotHeld)
	}
	if err := l.releaseParts(nil); err != nil {
		return opError("release", err)
	}
	return nil
}

// releaseParts ends the context, and begins to give the parts back, in reverse order. Then it waits for all
// of them, until stop is closed, if it is not nil. A part that its owner has released already is no error.
func (l *Lease) releaseParts(stop <-chan struct{}) (err error) {
	if lost := l.loss(); lost != nil { // just now: it may not have ended the context yet
		l.cancel(lost)
	}
	l.cancel(recipes.ErrReleased)
	awaits := make([]func(<-chan struct{}) error, 0, len(l.parts))
	for i, part := range slices.Backward(l.parts) {
		l.unbinds[i]()
		awaits = append(awaits, recipe.BeginRelease(part))
	}
	for _, await := range awaits {
		if released := await(stop); !errors.Is(released, recipes.ErrNotHeld) {
			err = zkutil.Both(err, released)
		}
	}
	return err
}

// withoutLosses returns err only if a znode may be left behind: of a lock that was lost there is
// nothing left to release.
func withoutLosses(err error) error {
	if errors.Is(err, recipes.ErrNodeNotDeleted) {
		return err
	}
	return nil
}
