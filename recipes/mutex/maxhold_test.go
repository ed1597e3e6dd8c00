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

// The context ends to the instant, and the lock stays held until the work returns.
func TestMaxHold(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m, next := f.Mutex(f.Client(), mutex.WithMaxHold(maxHold)), f.Mutex(f.Client())
		began := time.Now()
		lease := bubble.Acquire(f.T, m.Acquire)
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
		require.NoError(f, inner.Release())
		bubble.Pass(time.Minute)
		require.Empty(f, waiting)
		require.NoError(f, lease.Release())
		require.ErrorIs(f, lease.Release(), recipes.ErrNotHeld)
		successor := bubble.Granted(f, waiting)
		require.Greater(f, successor.FencingToken(), lease.FencingToken())
		require.NoError(f, successor.Release())
		require.NoError(f, bubble.Acquire(f.T, m.Acquire).Release(), "nothing is poisoned")
		require.Empty(f, f.Contenders())
	})
}

// Do with a function that takes too long says so, next to the error of the function. A quick function is not affected.
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

// A lease beyond its bound can be lost like any other. The znode and the context of a successor do not depend on it.
func TestLossBeyondMaxHold(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		lease := bubble.Acquire(f.T, f.Mutex(f.Troubled(), mutex.WithMaxHold(maxHold)).Acquire)
		bubble.Pass(maxHold + time.Second)
		f.Srv.Delete(lease.Path())
		bubble.Pass(time.Minute)
		err := lease.Release()
		require.ErrorIs(f, err, recipes.ErrMaxHold)
		require.ErrorIs(f, err, recipes.ErrNodeDeleted)
		require.ErrorIs(f, f.Cause(lease), recipes.ErrMaxHold, "the first end counts")

		client := f.Troubled()
		lease = bubble.Acquire(f.T, f.Mutex(client, mutex.WithMaxHold(maxHold)).Acquire)
		bubble.Pass(maxHold + time.Second)
		require.NoError(f, client.Close())
		require.ErrorIs(f, lease.Release(), recipes.ErrClosed)
		require.Empty(f, f.Contenders())
	})
}

// In a cohort the bound applies to each caller, and the next caller inside gets the lock when the work returns.
func TestMaxHoldInACohort(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		options := []mutex.Option{mutex.WithCohort(mutex.Cohort{}), mutex.WithMaxHold(maxHold)}
		first, second := f.Mutex(client, options...), f.Mutex(client, options...)
		lease := bubble.Acquire(f.T, first.Acquire)
		waiting := bubble.Start(f.Context(), second.Acquire)
		bubble.Pass(maxHold - time.Second)
		f.Stands(lease)
		bubble.Pass(time.Second)
		require.ErrorIs(f, f.Cause(lease), recipes.ErrMaxHold)
		bubble.Pass(time.Second)
		require.Empty(f, waiting)
		require.NoError(f, lease.Release())
		next := bubble.Granted(f, waiting)
		require.Equal(f, lease.Path(), next.Path(), "the znode stays")
		bubble.Pass(maxHold - time.Second)
		f.Stands(next)
		require.NoError(f, next.Release())
		lease, err := first.TryAcquire(f.Context())
		require.NoError(f, err)
		bubble.Pass(maxHold)
		require.ErrorIs(f, f.Cause(lease), recipes.ErrMaxHold)
		require.NoError(f, lease.Release())
	})
}

// Traces and the log report it once.
func TestMaxHoldIsReported(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		var ends []recipes.LeaseEnd
		client := f.Client(recipes.WithTrace(&recipes.Trace{LeaseEnd: func(_ context.Context, e recipes.LeaseEnd) { ends = append(ends, e) }}))
		lease := bubble.Acquire(f.T, f.Mutex(client, mutex.WithMaxHold(maxHold)).Acquire)
		bubble.Pass(maxHold + time.Second)
		require.Len(f, ends, 1)
		require.Equal(f, maxHold, ends[0].Held)
		require.ErrorIs(f, ends[0].Cause, recipes.ErrMaxHold)
		require.NoError(f, lease.Release())
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
