package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// In a session with many users short tasks run a few at a time. Who waits for a slot stops with its context, and when
// the session closes.
func TestShortTasksOfManyUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(6*time.Second))
		const users = 100
		for range users {
			s.Retain()
			defer s.Release()
		}
		runs, goOn, errs := make(chan struct{}, users), make(chan struct{}), make(chan error, users)
		for range users {
			go func() { // ends with goOn; joined below
				errs <- s.RunShortTask(t.Context(), func() error {
					runs <- struct{}{}
					<-goOn
					return nil
				})
			}()
		}
		synctest.Wait()
		few := len(runs)
		require.Less(t, few, users/2)
		require.Positive(t, few)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.RunShortTask(ctx, func() error { return nil }), context.DeadlineExceeded)
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }() // joined below
		synctest.Wait()
		require.Len(t, errs, users-few)
		for range users - few {
			require.ErrorIs(t, <-errs, zkutil.ErrClosed)
		}
		close(goOn)
		for range few {
			require.NoError(t, <-errs)
		}
		require.NoError(t, <-closed)
	})
}

// Short tasks begin in the order of their calls. One that has begun is waited for when its caller's context ends, because it may use
// what the caller has. One that has not begun never begins then.
func TestShortTasksBeginInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(6*time.Second))
		const users = 100
		for range users {
			s.Retain()
			defer s.Release()
		}
		ctx, cancel := context.WithCancel(t.Context())
		goOn, began, errs := make(chan struct{}), make(chan int, users), make(chan error, users)
		begin := func(ctx context.Context, i int) {
			go func() { // ends with goOn or ctx; joined below
				errs <- s.RunShortTask(ctx, func() error {
					began <- i
					<-goOn
					return nil
				})
			}()
			synctest.Wait()
		}
		for i := range users {
			if i%2 == 0 {
				begin(t.Context(), i)
			} else {
				begin(ctx, i)
			}
		}
		few := len(began)
		require.Equal(t, 32, few)
		cancel()
		synctest.Wait()
		require.Len(t, errs, (users-few)/2, "those that have begun are waited for")
		for range (users - few) / 2 {
			require.ErrorIs(t, <-errs, context.Canceled)
		}
		for range few + (users-few)/2 {
			goOn <- struct{}{}
			synctest.Wait() // so one task begins at a time
			require.NoError(t, <-errs)
		}
		close(began)
		before := -1
		for i := range began {
			require.Greater(t, i, before)
			require.True(t, i < few || i%2 == 0, i)
			before = i
		}
	})
}

// In a session with few users there is no slot to wait for.
func TestShortTasksOfFewUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(6*time.Second))
		depth := 0
		var nested func() error
		nested = func() error {
			if depth++; depth == 30 {
				return nil
			}
			return s.RunShortTask(t.Context(), nested)
		}
		require.NoError(t, nested())
		require.Equal(t, 30, depth)
	})
}
