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
	parts   []*recipes.Lease // in the order of acquisition; not changed after Acquire, like all fields up to mu
	unbinds []func() bool    // for the parts' contexts
	own     context.Context  //nolint:containedctx // ends with any part; has the values of the acquisition
	cancel  context.CancelCauseFunc
	ctx     context.Context //nolint:containedctx // own, with the values of the last part, which carry all holds

	mu         sync.Mutex // protects the fields below
	isReleased bool
}

// newLease returns a lease without parts.
func newLease(ctx context.Context) *Lease {
	l := &Lease{}
	l.own, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.ctx = l.own
	return l
}

// acquirePart acquires the next part. The part's context carries the holds of all parts so far, and the
// acquisition ends with ctx and with any of these holds.
func (l *Lease) acquirePart(ctx context.Context, acquire func(context.Context) (*recipes.Lease, error)) error {
	waiting, stop := context.WithCancelCause(withValues{ctx, context.WithoutCancel(l.ctx)})
	defer stop(nil)
	defer context.AfterFunc(l.own, func() { stop(context.Cause(l.own)) })() //nolint:contextcheck // a lease has a context of its own
	part, err := acquire(waiting)                                           //nolint:contextcheck // it has the end of ctx and the values of the parts
	isLease := part != nil && *part != (recipes.Lease{})
	if err != nil {
		if isLease { // of a Locker that returns both, so no other code would release it
			recipe.BeginRelease(part)
		}
		return err
	}
	if !isLease {
		return errors.New("the Locker returned neither a lease nor an error")
	}
	end := func() { l.cancel(context.Cause(part.Context())) } //nolint:contextcheck // a part has a context of its own
	l.parts = append(l.parts, part)
	l.unbinds = append(l.unbinds, context.AfterFunc(part.Context(), end)) //nolint:contextcheck // as above
	l.ctx = withValues{l.own, context.WithoutCancel(part.Context())}
	return nil
}

// loss returns why a part ended, or nil if all are held.
func (l *Lease) loss() error {
	for _, part := range l.parts {
		if cause := context.Cause(part.Context()); cause != nil {
			return cause
		}
	}
	return nil
}

// withValues is a context with the values of another context, which must not be cancellable, because
// package context looks for the cause of an end among the values.
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

// Context returns a context that ends when the context of any part ends, with the same cause, and with
// ErrReleased at Release. It has the values of the context of the acquisition, but neither its deadline
// nor its cancellation. Each part re-enters with this context.
func (l *Lease) Context() context.Context {
	if l.ctx == nil {
		panic(recipe.ZeroValue("context"))
	}
	return l.ctx
}

// Leases returns the leases of the parts, in the order of the locks. Releasing a part on its own ends
// the whole lease with ErrReleased.
func (l *Lease) Leases() []*recipes.Lease { return slices.Clone(l.parts) }

// Release releases all parts, in reverse order, by one transaction for each client, and continues after an error. Call
// it once per Acquire, typically with defer. Release begins all deletions before it waits for any, so the wait takes at most
// one operation timeout, however many parts the lease has. It returns
//
//   - nil when all parts are released;
//   - the errors of the parts' Release: the cause for a lost part, ErrNodeNotDeleted for a part whose
//     deletion continues in the background;
//   - ErrNotHeld when called again.
//
// The context is over when Release returns, even with an error.
func (l *Lease) Release() error {
	return l.release(recipe.BeginReleases)(nil)
}

// endWork does recipe.EndWork for all parts.
func (l *Lease) endWork() (await func(stop <-chan struct{}) error) { return l.release(recipe.EndWorks) }

// release begins to release the parts with begin. await returns the error of Release.
func (l *Lease) release(begin beginRelease) (await func(stop <-chan struct{}) error) {
	l.mu.Lock()
	isAgain := l.isReleased || l.cancel == nil // nil: a zero value
	l.isReleased = true
	l.mu.Unlock()
	if isAgain {
		return func(<-chan struct{}) error { return opError("release", recipes.ErrNotHeld) }
	}
	awaitParts := l.releaseParts(begin)
	return func(stop <-chan struct{}) error {
		if err := awaitParts(stop); err != nil {
			return opError("release", err)
		}
		return nil
	}
}

// beginRelease begins to release parts: recipe.BeginReleases or recipe.EndWorks.
type beginRelease func(parts ...*recipes.Lease) (awaits []func(stop <-chan struct{}) error)

// releaseParts ends the context, and begins to release the parts, in reverse order. await waits for all parts, but
// only until stop is closed, if stop is not nil. A part already released by its owner is no error.
func (l *Lease) releaseParts(begin beginRelease) (await func(stop <-chan struct{}) error) {
	if lost := l.loss(); lost != nil { // a fresh loss may not be in the context yet
		l.cancel(lost)
	}
	l.cancel(recipes.ErrReleased)
	for _, unbind := range l.unbinds {
		unbind()
	}
	reversed := slices.Clone(l.parts)
	slices.Reverse(reversed)
	awaits := begin(reversed...)
	return func(stop <-chan struct{}) (err error) {
		for _, await := range awaits {
			if released := await(stop); !errors.Is(released, recipes.ErrNotHeld) {
				err = zkutil.Both(err, released)
			}
		}
		return err
	}
}

// withoutLosses returns err only if a znode may be left behind: a lost lock leaves nothing to release.
func withoutLosses(err error) error {
	if errors.Is(err, recipes.ErrNodeNotDeleted) {
		return err
	}
	return nil
}
