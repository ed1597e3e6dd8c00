package mutex_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

const maxHold = 10 * time.Second // longer than the session timeout

// The context ends to the instant, and the lock stays held until the work has returned.
func TestMaxHold(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m, next := f.Mutex(f.Client(), mutex.WithMaxHold(maxHold)), f.Mutex(f.Client())
		began := time.Now()
		lease := locks.Acquire(f.T, m)
		bubble.Pass(3 * time.Second)
		inner, err := m.Acquire(lease.Context())
		require.NoError(f, err)
		waiting := f.Waiting(f.Context(), next)
		require.NoError(f, inner.Release())
		inner, err = m.Acquire(lease.Context())
		require.NoError(f, err)
		end := locks.EndOf(lease)
		for lease.Context().Err() == nil {
			require.False(f, lease.TrustedUntil().After(began.Add(maxHold)))
			bubble.Pass(time.Second / 10)
		}
		require.Equal(f, began.Add(maxHold), <-end)
		require.ErrorIs(f, f.Cause(lease), recipes.ErrMaxHold)
		require.ErrorIs(f, f.Cause(inner), recipes.ErrMaxHold)
		require.Equal(f, began.Add(maxHold), lease.TrustedUntil())
		_, err = m.Acquire(context.WithoutCancel(lease.Context()))
		require.ErrorIs(f, err, recipes.ErrMaxHold, "no new hold for the work that should have ended")

		bubble.Pass(time.Minute)
		require.Empty(f, waiting, "the work has not returned")
		require.ErrorIs(f, inner.Release(), recipes.ErrMaxHold)
		bubble.Pass(time.Minute)
		require.Empty(f, waiting)
		require.ErrorIs(f, lease.Release(), recipes.ErrMaxHold)
		require.ErrorIs(f, lease.Release(), recipes.ErrNotHeld)
		successor := f.Granted(waiting)
		require.Greater(f, successor.FencingToken(), lease.FencingToken())
		require.NoError(f, successor.Release())
		require.NoError(f, locks.Acquire(f.T, m).Release(), "nothing is poisoned")
		require.Empty(f, f.Contenders())
	})
}

// Do with a function that takes too long says so, next to the error of the function. One that is quick is not concerned.
func TestDoBeyondMaxHold(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client(), mutex.WithMaxHold(maxHold))
		began := time.Now()
		err := m.Do(f.Context(), func(ctx context.Context, _ *recipes.Lease) error {
			<-ctx.Done()
			require.ErrorIs(f, context.Cause(ctx), recipes.ErrMaxHold)
			require.Len(f, f.Contenders(), 1)
			return locks.ErrWork
		})
		require.Equal(f, maxHold, time.Since(began))
		require.ErrorIs(f, err, recipes.ErrMaxHold)
		require.ErrorIs(f, err, locks.ErrWork)
		require.Empty(f, f.Contenders())
		require.NoError(f, m.Do(f.Context(), func(context.Context, *recipes.Lease) error { bubble.Pass(maxHold - 1); return nil }))
	})
}

// A lease that is over its bound is lost as any other: the znode and the context of a successor do not depend on it.
func TestLossBeyondMaxHold(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		lease := locks.Acquire(f.T, f.Mutex(f.Troubled(), mutex.WithMaxHold(maxHold)))
		bubble.Pass(maxHold + time.Second)
		f.Srv.Delete(lease.Path())
		bubble.Pass(time.Minute)
		err := lease.Release()
		require.ErrorIs(f, err, recipes.ErrMaxHold)
		require.ErrorIs(f, err, recipes.ErrNodeDeleted)
		require.ErrorIs(f, f.Cause(lease), recipes.ErrMaxHold, "the first end counts")

		client := f.Troubled()
		lease = locks.Acquire(f.T, f.Mutex(client, mutex.WithMaxHold(maxHold)))
		bubble.Pass(maxHold + time.Second)
		require.NoError(f, client.Close())
		require.ErrorIs(f, lease.Release(), recipes.ErrClosed)
		require.Empty(f, f.Contenders())
	})
}

// In a cohort the bound is that of each caller, and the lock goes on to the next one inside when the work has returned.
func TestMaxHoldInACohort(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		options := []mutex.Option{mutex.WithCohort(mutex.Cohort{}), mutex.WithMaxHold(maxHold)}
		first, second := f.Mutex(client, options...), f.Mutex(client, options...)
		lease := locks.Acquire(f.T, first)
		waiting := locks.Acquiring(f.Context(), second)
		bubble.Pass(maxHold - time.Second)
		f.Stands(lease)
		bubble.Pass(time.Second)
		require.ErrorIs(f, f.Cause(lease), recipes.ErrMaxHold)
		bubble.Pass(time.Second)
		require.Empty(f, waiting)
		require.ErrorIs(f, lease.Release(), recipes.ErrMaxHold)
		next := f.Granted(waiting)
		require.Equal(f, lease.Path(), next.Path(), "the znode stays")
		bubble.Pass(maxHold - time.Second)
		f.Stands(next)
		require.NoError(f, next.Release())
		lease, err := first.TryAcquire(f.Context())
		require.NoError(f, err)
		bubble.Pass(maxHold)
		require.ErrorIs(f, f.Cause(lease), recipes.ErrMaxHold)
		require.ErrorIs(f, lease.Release(), recipes.ErrMaxHold)
	})
}

// Traces and the log tell of it, once.
func TestMaxHoldIsTold(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		var ends []recipes.LeaseEnd
		client := f.Client(recipes.WithTrace(&recipes.Trace{LeaseEnd: func(_ context.Context, e recipes.LeaseEnd) { ends = append(ends, e) }}))
		lease := locks.Acquire(f.T, f.Mutex(client, mutex.WithMaxHold(maxHold)))
		bubble.Pass(maxHold + time.Second)
		require.Len(f, ends, 1)
		require.Equal(f, maxHold, ends[0].Held)
		require.ErrorIs(f, ends[0].Cause, recipes.ErrMaxHold)
		require.ErrorIs(f, lease.Release(), recipes.ErrMaxHold)
		require.Len(f, ends, 1)
	})
}

func TestMaxHoldHasToBePositive(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		for _, d := range []time.Duration{0, -1} {
			_, err := mutex.New(f.Client(), locks.Path, mutex.WithMaxHold(d))
			require.ErrorIs(f, err, recipes.ErrInvalidArgument)
		}
	})
}
