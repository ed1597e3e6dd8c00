package multilock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// Locker is a lock that can be part of a multilock, such as the locks of packages mutex, rwlock and
// semaphore.
type Locker interface {
	// Acquire blocks until the lock is held, and returns its lease. ctx bounds only the wait.
	Acquire(ctx context.Context) (*recipes.Lease, error)
	// TryAcquire returns an error that matches ErrNotAcquired if the call would have to wait for another contender.
	TryAcquire(ctx context.Context) (*recipes.Lease, error)
}

// InterProcessMultiLock is several locks that are acquired and released together. Create it with [New]
// or [NewMutexes]; it needs no closing.
type InterProcessMultiLock struct {
	locks []Locker
}

// New returns a multilock of locks, which are acquired in this order. The error is ErrInvalidArgument
// if locks is empty, or if a lock is nil or given twice. New sends nothing to the server.
func New(locks ...Locker) (*InterProcessMultiLock, error) {
	if len(locks) == 0 {
		return nil, opError("new", zkutil.Invalid(errors.New("no locks given")))
	}
	for i, lock := range locks {
		if isNil(lock) {
			return nil, opError("new", zkutil.Invalid(fmt.Errorf("lock %d of %d is nil", i+1, len(locks))))
		}
		if first := slices.IndexFunc(locks, func(other Locker) bool { return isSame(other, lock) }); first >= 0 && first < i {
			return nil, opError("new", zkutil.Invalid(fmt.Errorf("lock %d of %d is the same as lock %d", i+1, len(locks), first+1)))
		}
	}
	return &InterProcessMultiLock{locks: slices.Clone(locks)}, nil
}

// isNil reports whether a lock is nil, a nil pointer or a nil function.
func isNil(lock Locker) bool {
	v := reflect.ValueOf(lock)
	return !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
}

// isSame compares two locks as far as their types allow: a user's Locker need not be comparable.
func isSame(a, b Locker) bool {
	return a != nil && b != nil && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// NewMutexes returns a multilock of mutexes on paths, which are acquired in sorted order, so that two
// programs with the same paths can't deadlock. The options apply to each mutex. The error is
// ErrInvalidArgument if paths is empty, if a path is given twice, or if mutex.New refuses a path.
// NewMutexes sends nothing to the server.
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

// Acquire blocks until all locks are held, and returns one lease for all. The context bounds the
// wait for all locks together, and only the wait: the lease remains valid when ctx ends. See "One transaction" in
// the package documentation.
//
// Acquire stops at the first failure. Then it releases the locks acquired so far, in reverse order, and
// returns the error of the failed lock. If ctx ends, the error is a *recipes.WaitError. If a lock
// acquired so far is lost meanwhile, the error is the cause of the loss.
//
// If a lock of another package panics, Acquire releases the locks acquired so far, and panics on. If it returns neither a lease nor
// an error, Acquire fails. A lease that it returns beside an error is released.
//
// Acquire waits for the release while ctx lasts, for one operation timeout at most. An
// ErrNodeNotDeleted of the release is added to the error. After the end of ctx the znodes are deleted
// in the background.
func (m *InterProcessMultiLock) Acquire(ctx context.Context) (*Lease, error) {
	return m.acquireAll(ctx, "acquire", true, Locker.Acquire)
}

// TryAcquire is Acquire without waiting for other contenders. If another contender holds a lock,
// TryAcquire releases the locks acquired so far, and fails with a *recipes.WaitError. It still waits for the
// server's answers: use ctx to bound this wait.
func (m *InterProcessMultiLock) TryAcquire(ctx context.Context) (*Lease, error) {
	return m.acquireAll(ctx, "try acquire", false, Locker.TryAcquire)
}

func (m *InterProcessMultiLock) acquireAll(
	ctx context.Context, op string, mayWait bool, acquire func(Locker, context.Context) (*recipes.Lease, error),
) (*Lease, error) {
	if len(m.locks) == 0 {
		return nil, recipe.ZeroValue(op)
	}
	lease, startedAt := newLease(ctx), time.Now()
	basket := queue.NewBasket(m.queues(ctx), mayWait)
	defer basket.Leave()
	isOver := false
	defer func() { //nolint:contextcheck // the parts have contexts of their own
		if !isOver { // a user's Locker panicked, or ended its goroutine
			lease.releaseParts(recipe.BeginReleases)
		}
	}()
	for i, lock := range m.locks {
		err := lease.acquirePart(ctx, func(ctx context.Context) (*recipes.Lease, error) { return acquire(lock, basket.With(ctx)) })
		if lost := lease.loss(); lost != nil { //nolint:contextcheck // the parts have contexts of their own
			err = fmt.Errorf("lost a lock before lock %d of %d was acquired: %w", i+1, len(m.locks), lost)
		} else if err != nil {
			err = fmt.Errorf("lock %d of %d: %w", i+1, len(m.locks), asWaitError(ctx, err, startedAt))
		}
		if err != nil {
			isOver = true
			basket.Leave()
			released := lease.releaseParts(recipe.BeginReleases)(ctx.Done()) //nolint:contextcheck // as above
			return nil, opError(op, zkutil.Both(err, withoutLosses(zkutil.Both(released, basket.Await(ctx.Done())))))
		}
	}
	isOver = true
	return lease, nil
}

// queues returns the queues of all locks, or nil if some lock has to be acquired by its own Acquire alone.
func (m *InterProcessMultiLock) queues(ctx context.Context) []*queue.Queue {
	queues := make([]*queue.Queue, len(m.locks))
	for i, lock := range m.locks {
		if queues[i] = recipe.QueueOf(ctx, lock); queues[i] == nil {
			return nil
		}
	}
	return queues
}

// asWaitError returns the error of a lock. The Locker of another package may return ErrNotAcquired, or the error of ctx, without a
// WaitError.
func asWaitError(ctx context.Context, err error, startedAt time.Time) error {
	_, isWaitError := zkutil.AsType[*recipes.WaitError](err)
	isEnd := ctx.Err() != nil && errors.Is(err, ctx.Err())
	if isWaitError || !isEnd && !errors.Is(err, recipes.ErrNotAcquired) {
		return err
	}
	return &recipes.WaitError{Waited: time.Since(startedAt), Err: err}
}

// Do acquires all locks, calls fn, and releases the locks. ctx bounds both the wait and the work: a
// deadline meant for the wait also ends the work. Use [InterProcessMultiLock.DoWithin] to bound the
// wait alone.
//
// The context passed to fn re-enters each lock. It ends with any of the leases, with ctx, or when fn
// returns. It has the deadline and the cause of ctx. If fn panics, Do releases the locks and re-panics.
//
// Do returns an error whose text is one line. errors.Is finds in it
//
//   - the losses of parts, if any part was lost (ErrSessionLost, ErrSuspended, ErrNodeDeleted, ErrClosed),
//     followed by fn's error, which may be the Canceled of its context;
//   - otherwise fn's error, unchanged;
//   - the error of Acquire, if not all locks were acquired and fn was not called.
//
// Do returns when all znodes are deleted, so that others can have the locks. Do does not wait for the deletions
// beyond the end of ctx, nor beyond the time for which the leases could be held, nor beyond the operation timeout.
// After that the deletion continues in the background, and the client logs a record at Warn.
func (m *InterProcessMultiLock) Do(ctx context.Context, fn func(context.Context, *Lease) error) error {
	return recipe.Do(ctx, opError, m.Acquire, (*Lease).endWork, fn)
}

// DoWithin is Do with a separate bound for the acquisition: wait bounds the wait for all locks, and ctx
// the work and the call as a whole. If not all locks were acquired within wait, or before the end of
// ctx, the error has a *recipes.WaitError, and fn was not called.
//
// With a wait of 0 or less, DoWithin does not wait for other contenders, like TryAcquire. DoWithin still
// waits for the server's answers: use ctx to bound this wait.
func (m *InterProcessMultiLock) DoWithin(ctx context.Context, wait time.Duration, fn func(context.Context, *Lease) error) error {
	return recipe.Do(ctx, opError, recipe.Within(wait, m.Acquire, m.TryAcquire), (*Lease).endWork, fn)
}

func opError(op string, err error) *recipes.OpError {
	return &recipes.OpError{Op: "multilock: " + op, Err: err}
}
