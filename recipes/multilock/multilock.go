package multilock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// Locker is a lock that can be part of a multilock: the locks of packages mutex, rwlock and semaphore.
type Locker interface {
	// Acquire blocks until the lock is held, and returns its lease. ctx bounds only the wait.
	Acquire(ctx context.Context) (*recipes.Lease, error)
	// TryAcquire returns ErrNotAcquired if it would have to wait for another contender.
	TryAcquire(ctx context.Context) (*recipes.Lease, error)
}

// InterProcessMultiLock is several locks that are acquired and released as one. Create it with [New] or
// [NewMutexes]; it needs no closing.
type InterProcessMultiLock struct {
	locks []Locker
}

// New returns a multilock of locks, which are acquired in this order. The error is ErrInvalidArgument
// if there is none, and if a lock is nil or given twice. Nothing is sent to the server here.
func New(locks ...Locker) (*InterProcessMultiLock, error) {
	if len(locks) == 0 {
		return nil, opError("new", zkutil.Invalid(errors.New("no locks given")))
	}
	for i, lock := range locks {
		if isNil(lock) {
			return nil, opError("new", zkutil.Invalid(fmt.Errorf("lock %d of %d is nil", i+1, len(locks))))
		}
		if first := slices.IndexFunc(locks, func(other Locker) bool { return isSame(other, lock) }); first >= 0 && first < i {
			return nil, opError("new", zkutil.Invalid(fmt.Errorf("lock %d of %d is lock %d again", i+1, len(locks), first+1)))
		}
	}
	return &InterProcessMultiLock{locks: slices.Clone(locks)}, nil
}

// isNil reports whether a lock is nil, or a pointer that is nil.
func isNil(lock Locker) bool {
	v := reflect.ValueOf(lock)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// isSame compares two locks as far as their types allow: a Locker of the user's need not be comparable.
func isSame(a, b Locker) bool {
	return a != nil && b != nil && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// NewMutexes returns a multilock of mutexes on paths, which are acquired in the order of the sorted
// paths: so two programs with the same paths can't wait for each other. The options are those of each
// mutex. The error is ErrInvalidArgument if there is no path, if one is given twice, and if mutex.New
// refuses one. Nothing is sent to the server here.
func NewMutexes(c *recipes.Client, paths []string, opts ...mutex.Option) (*InterProcessMultiLock, error) {
	sorted := slices.Sorted(slices.Values(paths))
	locks := make([]Locker, len(sorted))
	for i, path := range sorted {
		if i > 0 && path == sorted[i-1] {
			return nil, opError("new", zkutil.Invalid(fmt.Errorf("path %q is given twice", path)))
		}
		lock, err := mutex.New(c, path, opts...)
		if err != nil {
			return nil, opError("new", err)
		}
		locks[i] = lock
	}
	return New(locks...)
}

// Acquire blocks until all locks are held, and returns the lease of them all. The context bounds only
// the wait, and all of it: the lease remains valid when ctx ends.
//
// Acquire stops at the first failure. Then it releases the locks that it has, in reverse order, and
// returns the error of the lock that has failed. If ctx ends, that is a *recipes.WaitError. If one of
// the locks that it has is lost meanwhile, the error is the cause of that loss.
//
// Acquire waits for the release while ctx lasts, for one operation timeout at most. An
// ErrNodeNotDeleted of that is added to the error. After the end of ctx the znodes are deleted in the
// background.
func (m *InterProcessMultiLock) Acquire(ctx context.Context) (*Lease, error) {
	return m.acquireAll(ctx, "acquire", Locker.Acquire)
}

// TryAcquire is Acquire without the wait for other contenders. If a lock is held by another,
// TryAcquire releases those that it has, and returns ErrNotAcquired. It still waits for the server's
// answers: bound it by ctx.
func (m *InterProcessMultiLock) TryAcquire(ctx context.Context) (*Lease, error) {
	return m.acquireAll(ctx, "try acquire", Locker.TryAcquire)
}

func (m *InterProcessMultiLock) acquireAll(
	ctx context.Context, op string, acquire func(Locker, context.Context) (*recipes.Lease, error),
) (*Lease, error) {
	lease := newLease(ctx)
	for i, lock := range m.locks {
		err := lease.acquirePart(ctx, func(ctx context.Context) (*recipes.Lease, error) { return acquire(lock, ctx) })
		if lost := lease.loss(); lost != nil { //nolint:contextcheck // the parts have contexts of their own
			err = fmt.Errorf("lost a lock before lock %d of %d was acquired: %w", i+1, len(m.locks), lost)
		} else if err != nil {
			err = fmt.Errorf("lock %d of %d: %w", i+1, len(m.locks), err)
		}
		if err != nil {
			released := withoutLosses(lease.releaseParts(ctx.Done())) //nolint:contextcheck // as above
			return nil, opError(op, zkutil.Both(err, released))
		}
	}
	return lease, nil
}

// Do acquires all locks, calls fn, and releases them. The context that fn gets re-enters each lock. It
// ends with any of the leases, with ctx, or when fn returns. If fn panics, Do releases the locks and
// panics on.
//
// Do returns an error in one line of text. errors.Is finds in it
//
//   - the losses of parts, if there were any (ErrSessionLost, ErrSuspended, ErrNodeDeleted, ErrClosed),
//     followed by fn's error, which may be the Canceled of its context;
//   - otherwise fn's error, unchanged, followed by ErrNodeNotDeleted if a release has failed;
//   - the error of Acquire, if not all locks were acquired and fn was not called.
func (m *InterProcessMultiLock) Do(ctx context.Context, fn func(context.Context, *Lease) error) error {
	return recipe.Do(ctx, opError, m.Acquire, fn)
}

func opError(op string, err error) *recipes.OpError {
	return &recipes.OpError{Op: "multilock: " + op, Err: err}
}
