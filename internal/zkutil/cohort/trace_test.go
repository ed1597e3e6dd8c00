package cohort_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// The hooks of traces are called for each caller inside, which counts the callers and contenders ahead of it.
func TestCohortTraces(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		acquired, ended := make(chan recipes.AcquireEnd, 16), make(chan recipes.LeaseEnd, 16)
		client := f.Troubled(recipes.WithTrace(&recipes.Trace{
			AcquireEnd: func(_ context.Context, end recipes.AcquireEnd) { acquired <- end },
			LeaseEnd:   func(_ context.Context, end recipes.LeaseEnd) { ended <- end },
		}))
		holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		m := cohortOf(f, client, mutex.Cohort{})
		waiters := []<-chan bubble.Outcome[*recipes.Lease]{f.Waiting(f.Context(), m), waitInside(f, f.Context(), m)}
		require.NoError(f, holder.Release())
		lease := bubble.Granted(f, waiters[0])
		waiters = append(waiters, waitInside(f, f.Context(), m))
		_, err := m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		token := lease.FencingToken()
		require.NoError(f, lease.Release())
		second := bubble.Granted(f, waiters[1])
		bubble.Pass(bubble.Moment)
		f.Srv.Delete(second.Path())
		require.ErrorIs(f, f.Cause(second), recipes.ErrNodeDeleted)
		third := bubble.Granted(f, waiters[2])
		bubble.Pass(bubble.Moment) // a loss is traced in the background
		require.NoError(f, third.Release())

		first, tried, next, last := <-acquired, <-acquired, <-acquired, <-acquired
		require.Equal(f, 1, first.Ahead)
		require.Equal(f, token, first.Token)
		require.ErrorIs(f, tried.Err, recipes.ErrNotAcquired)
		require.True(f, tried.Try)
		require.Equal(f, 2, next.Ahead, "the holder, and the first caller inside")
		require.Equal(f, token, next.Token)
		require.Equal(f, 2, last.Ahead, "both callers inside")
		require.Greater(f, last.Token, token)
		require.NoError(f, (<-ended).Cause)
		require.ErrorIs(f, (<-ended).Cause, recipes.ErrNodeDeleted)
		require.NoError(f, (<-ended).Cause)
		require.Empty(f, ended)
	})
}

// LeaseEnd of a cohort's lease is called when others can have the lock, inside and elsewhere: it may ask for the lock, and may
// take long.
func TestCohortPassesOnBeforeLeaseEnd(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		var m *mutex.InterProcessMutex
		var isSecond atomic.Bool
		hookDone := make(chan error, 1)
		client := f.Client(recipes.WithTrace(&recipes.Trace{LeaseEnd: func(ctx context.Context, _ recipes.LeaseEnd) {
			if isSecond.Swap(true) {
				return
			}
			bubble.Pause(time.Minute)
			lease, err := m.Acquire(ctx)
			if err == nil {
				err = lease.Release()
			}
			hookDone <- err
		}}))
		m = cohortOf(f, client, mutex.Cohort{})
		first := bubble.Acquire(f.T, m.Acquire)
		inside := waitInside(f, f.Context(), m)
		began := time.Now()
		released := make(chan error, 1)
		go func() { released <- first.Release() }() // joined below
		second := bubble.Granted(f, inside)
		elsewhere := f.Waiting(f.Context(), f.Mutex(f.Client()))
		require.NoError(f, second.Release())
		require.NoError(f, bubble.Granted(f, elsewhere).Release())
		require.Less(f, time.Since(began), time.Second)
		require.NoError(f, <-hookDone)
		require.NoError(f, <-released)
		require.GreaterOrEqual(f, time.Since(began), time.Minute, "Release waits for the hook")
	})
}
