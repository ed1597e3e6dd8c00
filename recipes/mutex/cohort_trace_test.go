package mutex_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// The hooks of traces are called for each caller inside, which counts the callers and contenders ahead of it.
func TestCohortTraces(t *testing.T) {
	inBubble(t, func(f *fixture) {
		acquired, ended := make(chan recipes.AcquireEnd, 16), make(chan recipes.LeaseEnd, 16)
		client := f.troubled(recipes.WithTrace(&recipes.Trace{
			AcquireEnd: func(_ context.Context, end recipes.AcquireEnd) { acquired <- end },
			LeaseEnd:   func(_ context.Context, end recipes.LeaseEnd) { ended <- end },
		}))
		holder := acquire(f.T, f.mutex(f.client()))
		m := f.cohort(client, mutex.Cohort{})
		waiters := []<-chan result{f.waiting(f.Context(), m), f.waitInside(f.Context(), m)}
		require.NoError(f, holder.Release())
		lease := f.granted(waiters[0])
		waiters = append(waiters, f.waitInside(f.Context(), m))
		_, err := m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		token := lease.FencingToken()
		require.NoError(f, lease.Release())
		second := f.granted(waiters[1])
		pass(moment)
		f.srv.Delete(second.Path())
		require.ErrorIs(f, f.cause(second), recipes.ErrNodeDeleted)
		third := f.granted(waiters[2])
		pass(moment) // a loss is told in the background
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
	inBubble(t, func(f *fixture) {
		var m *mutex.InterProcessMutex
		var isSecond atomic.Bool
		hookDone := make(chan error, 1)
		client := f.client(recipes.WithTrace(&recipes.Trace{LeaseEnd: func(ctx context.Context, _ recipes.LeaseEnd) {
			if isSecond.Swap(true) {
				return
			}
			pause(time.Minute)
			lease, err := m.Acquire(ctx)
			if err == nil {
				err = lease.Release()
			}
			hookDone <- err
		}}))
		m = f.cohort(client, mutex.Cohort{})
		first := acquire(f.T, m)
		inside := f.waitInside(f.Context(), m)
		began := time.Now()
		released := make(chan error, 1)
		go func() { released <- first.Release() }() // joined below
		second := f.granted(inside)
		elsewhere := f.waiting(f.Context(), f.mutex(f.client()))
		require.NoError(f, second.Release())
		require.NoError(f, f.granted(elsewhere).Release())
		require.Less(f, time.Since(began), time.Second)
		require.NoError(f, <-hookDone)
		require.NoError(f, <-released)
		require.GreaterOrEqual(f, time.Since(began), time.Minute, "Release waits for the hook")
	})
}
