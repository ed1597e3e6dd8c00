package semaphore

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// InterProcessSemaphoreMutex is a semaphore with one permit: a lock that never re-enters, so that it
// may be acquired in one place and released in another. Create it with [NewMutex]; it needs no closing.
type InterProcessSemaphoreMutex struct {
	semaphore *InterProcessSemaphore
}

// NewMutex returns a mutex on path, an absolute path below the client's namespace. The znodes are those
// of a semaphore with the limit 1. They are created when first needed. Nothing is sent to the server
// here.
func NewMutex(c *recipes.Client, path string, opts ...Option) (*InterProcessSemaphoreMutex, error) {
	s, err := newSemaphore(c, "semaphore mutex", path, 1, opts)
	if err != nil {
		return nil, err
	}
	if s.shared != nil {
		return nil, s.base.InvalidArgument("new", errors.New("a mutex has no shared limit"))
	}
	return &InterProcessSemaphoreMutex{s}, nil
}

// Acquire blocks until the lock is held, and returns the lease. It never re-enters: with the context of
// a lease it waits, too. The context bounds only the wait: the lease remains valid when ctx ends. For
// the errors see [InterProcessSemaphore.AcquireN].
func (m *InterProcessSemaphoreMutex) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return m.semaphore.Acquire(ctx)
}

// TryAcquire is Acquire without the wait for other contenders: see [InterProcessSemaphore.TryAcquireN].
func (m *InterProcessSemaphoreMutex) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return m.semaphore.TryAcquire(ctx)
}

// Do acquires the lock, calls fn, and releases the lock: see [InterProcessSemaphore.Do].
func (m *InterProcessSemaphoreMutex) Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error {
	return m.semaphore.Do(ctx, fn)
}

// Participants returns the holder, if there is one.
func (m *InterProcessSemaphoreMutex) Participants(ctx context.Context) ([]recipes.Participant, error) {
	return m.semaphore.Participants(ctx)
}
