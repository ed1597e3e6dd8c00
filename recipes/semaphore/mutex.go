package semaphore

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// InterProcessSemaphoreMutex is a semaphore with one permit. It never re-enters, so that one function may acquire and
// another may release the lock. Create it with [NewMutex]; it needs no closing.
type InterProcessSemaphoreMutex struct {
	semaphore InterProcessSemaphore
}

// NewMutex returns a mutex on path, an absolute path below the client's namespace. The znodes are those
// of a semaphore with the limit 1, and are created when first needed. NewMutex sends nothing to the
// server.
func NewMutex(c *recipes.Client, path string, opts ...Option) (*InterProcessSemaphoreMutex, error) {
	m := &InterProcessSemaphoreMutex{}
	if err := m.semaphore.init(c, "semaphore-mutex", path, 1, opts); err != nil {
		return nil, err
	}
	if m.semaphore.shared != nil {
		return nil, m.semaphore.base.InvalidArgument("new", errors.New("a mutex has no shared limit"))
	}
	return m, nil
}

// Acquire blocks until the lock is held, and returns the lease. It never re-enters. Even with the context of a lease,
// Acquire waits. The context bounds only the wait. The lease remains valid when ctx ends. For the errors see
// [InterProcessSemaphore.AcquireN].
func (m *InterProcessSemaphoreMutex) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return m.semaphore.Acquire(ctx)
}

// TryAcquire is Acquire without waiting for other contenders (see [InterProcessSemaphore.TryAcquireN]).
func (m *InterProcessSemaphoreMutex) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return m.semaphore.TryAcquire(ctx)
}

// Do acquires the lock, calls fn, and releases the lock. ctx bounds both the wait and the work; DoWithin
// bounds the wait alone. See [InterProcessSemaphore.Do].
func (m *InterProcessSemaphoreMutex) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error {
	return m.semaphore.Do(ctx, fn)
}

// DoWithin is Do with a separate bound for the acquisition (see [InterProcessSemaphore.DoWithin]).
func (m *InterProcessSemaphoreMutex) DoWithin(ctx context.Context, wait time.Duration, fn func(context.Context, *recipes.Lease) error) error {
	return m.semaphore.DoWithin(ctx, wait, fn)
}

// Participants returns the holder, if any.
func (m *InterProcessSemaphoreMutex) Participants(ctx context.Context) ([]recipes.Participant, error) {
	return m.semaphore.Participants(ctx)
}
