package multilock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// kinds are parts of each kind, of a client with a long session: two mutexes, one of them with a cohort, a read
// lock, a write lock and a semaphore.
func kinds(b *bubble.Bubble) []multilock.Locker {
	b.Helper()
	client := b.Troubled(recipes.WithSessionTimeout(time.Minute), recipes.WithOperationTimeout(5*time.Second))
	cohort, err := mutex.New(client, "/locks/cohort", mutex.WithCohort(mutex.Cohort{}))
	require.NoError(b, err)
	permits, err := semaphore.New(client, "/locks/permits", 2)
	require.NoError(b, err)
	return []multilock.Locker{
		mutexOn(b, client, all[0]), cohort, rwlockOn(b, client, all[1]).ReadLock(), rwlockOn(b, client, all[2]).WriteLock(), permits,
	}
}

// nobody requires that no part of kinds has a contender.
func nobody(b *bubble.Bubble) {
	b.Helper()
	require.Empty(b, held(b))
	require.Empty(b, b.Queue("/locks/cohort"))
	require.Empty(b, b.Queue("/locks/permits/leases"))
}

// Release waits for one operation timeout in all, not per part, and reports each part whose znode remains. These are deleted
// in the background.
func TestReleaseDuringAnOutage(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		parts := kinds(b)
		m, err := multilock.New(parts...)
		require.NoError(b, err)
		lease := bubble.Acquire(b, m.Acquire)
		over, start := b.Outage(), time.Now()
		released := make(chan error, 1)
		go func() { released <- lease.Release() }()
		bubble.Pass(bubble.Moment)
		for _, part := range lease.Leases() {
			require.ErrorIs(b, context.Cause(part.Context()), recipes.ErrReleased, "all deletions begin at once")
		}
		err = <-released
		require.Equal(b, 5*time.Second, time.Since(start))
		require.ErrorIs(b, err, recipes.ErrNodeNotDeleted)
		require.Equal(b, len(parts), strings.Count(err.Error(), recipes.ErrNodeNotDeleted.Error()), err)
		over()
		bubble.Pass(10 * time.Second)
		nobody(b)
	})
}

// An outage begins while the last part is awaited. Acquire returns with its context, and the znodes are deleted in the
// background.
func TestAcquireDuringAnOutage(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		taken := bubble.Acquire(b, mutexOn(b, b.Client(), "/taken").Acquire)
		last := mutexOn(b, b.Troubled(), "/taken")
		m, err := multilock.New(append(kinds(b), last)...)
		require.NoError(b, err)
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		start, waiting := time.Now(), bubble.Waiting(b, ctx, m.Acquire)
		bubble.Pass(3 * time.Second)
		over := b.Outage()
		got := bubble.Receive(b, waiting)
		require.Equal(b, 5*time.Second, got.At.Sub(start))
		require.ErrorIs(b, got.Err, context.DeadlineExceeded)
		require.NotErrorIs(b, got.Err, recipes.ErrNodeNotDeleted)
		over()
		bubble.Pass(10 * time.Second)
		nobody(b)
		b.Release(taken)
	})
}

// After another failure Acquire waits for the deletions while its context lasts, for one operation timeout at most.
func TestFailureDuringAnOutage(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{2 * time.Second: 2 * time.Second, time.Minute: 5 * time.Second} {
		bubble.Run(t, func(b *bubble.Bubble) {
			broken, over := errors.New("broken"), func() {}
			stopping := lockFunc(func(context.Context) (*recipes.Lease, error) {
				over = b.Outage()
				return nil, broken
			})
			m, err := multilock.New(append(kinds(b), stopping)...)
			require.NoError(b, err)
			ctx, cancel := context.WithTimeout(b.Context(), limit)
			defer cancel()
			start := time.Now()
			_, err = m.Acquire(ctx)
			require.InDelta(b, want, time.Since(start), float64(bubble.Moment))
			require.ErrorIs(b, err, broken)
			require.Equal(b, limit > want, errors.Is(err, recipes.ErrNodeNotDeleted))
			over()
			bubble.Pass(10 * time.Second)
			nobody(b)
		})
	}
}

// lockFunc is a lock whose methods are a function.
type lockFunc func(ctx context.Context) (*recipes.Lease, error)

func (f lockFunc) Acquire(ctx context.Context) (*recipes.Lease, error)    { return f(ctx) }
func (f lockFunc) TryAcquire(ctx context.Context) (*recipes.Lease, error) { return f(ctx) }
