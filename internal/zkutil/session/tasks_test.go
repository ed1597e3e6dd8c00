package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// users is so many that short tasks wait for slots.
const users = 100

// retain makes a session have that many users, until release is called.
func retain(s *session.Session) (release func()) {
	for range users {
		s.Retain()
	}
	return func() {
		for range users {
			s.Release()
		}
	}
}

// In a session with many users short tasks run a few at a time. Who waits for a slot stops with its context, and when
// the session closes.
func TestShortTasksOfManyUsers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(6*time.Second))
		defer retain(s)()
		runs, goOn, errs := make(chan struct{}, users), make(chan struct{}), make(chan error, users)
		for range users {
			go func() { // ends with goOn; joined below
				errs <- s.RunShortTask(t.Context(), func(context.Context) error {
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
		require.ErrorIs(t, s.RunShortTask(ctx, func(context.Context) error { return nil }), context.DeadlineExceeded)
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
	testkit.Bubble(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(6*time.Second))
		defer retain(s)()
		ctx, cancel := context.WithCancel(t.Context())
		goOn, began, errs := make(chan struct{}), make(chan int, users), make(chan error, users)
		begin := func(ctx context.Context, i int) {
			go func() { // ends with goOn or ctx; joined below
				errs <- s.RunShortTask(ctx, func(context.Context) error {
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

// A short task that pauses before it repeats a request holds nobody up.
func TestShortTaskThatRepeatsLeavesItsSlot(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(6*time.Second))
		defer retain(s)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		errs := make(chan error, users)
		for range users {
			go func() { // ends with ctx; joined below
				errs <- s.RunShortTask(ctx, func(ctx context.Context) error {
					_, err := session.Repeat(ctx, s, func() (struct{}, error) { return struct{}{}, zk.ErrNoServer })
					return err
				})
			}()
		}
		synctest.Wait()
		began := time.Now()
		require.NoError(t, s.RunShortTask(t.Context(), func(context.Context) error { return nil }))
		require.Zero(t, time.Since(began))
		cancel()
		for range users {
			require.ErrorIs(t, <-errs, context.Canceled)
		}
		running, goOn := make(chan struct{}, users), make(chan struct{})
		for range users {
			go func() { // ends with goOn; joined below
				errs <- s.RunShortTask(t.Context(), func(context.Context) error {
					running <- struct{}{}
					<-goOn
					return nil
				})
			}()
		}
		synctest.Wait()
		require.Len(t, running, 32, "each slot was given back once")
		close(goOn)
		for range users {
			require.NoError(t, <-errs)
		}
	})
}

// Close ends the short tasks that pause between their repetitions, and waits for them.
func TestCloseEndsShortTasksThatRepeat(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(6*time.Second))
		defer retain(s)()
		errs := make(chan error, users)
		for range users {
			go func() { // ends with the session; joined below
				errs <- s.RunShortTask(t.Context(), func(ctx context.Context) error {
					_, err := session.Repeat(ctx, s, func() (struct{}, error) { return struct{}{}, zk.ErrNoServer })
					return err
				})
			}()
		}
		synctest.Wait()
		began := time.Now()
		require.NoError(t, s.Close())
		require.Zero(t, time.Since(began))
		for range users {
			require.ErrorIs(t, <-errs, zkutil.ErrClosed)
		}
	})
}

// In a session with few users there is no slot to wait for.
func TestShortTasksOfFewUsers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(6*time.Second))
		depth := 0
		var nested func(context.Context) error
		nested = func(ctx context.Context) error {
			if depth++; depth == 30 {
				return nil
			}
			return s.RunShortTask(ctx, nested)
		}
		require.NoError(t, nested(t.Context()))
		require.Equal(t, 30, depth)
	})
}

// As many short tasks as run at a time pause, each with another one behind it: those begin, as many at a time.
func TestShortTasksBehindThoseThatPause(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := fixture.Connect(t, fixture.NewEnsemble(t).Config(6*time.Second))
		defer retain(s)()
		pause, goOn, errs := make(chan struct{}), make(chan struct{}), make(chan error, 2*session.MaxShortTasks+1)
		began := make(chan struct{}, cap(errs))
		run := func(fn func(ctx context.Context)) {
			go func() { // ends with goOn; joined below
				errs <- s.RunShortTask(t.Context(), func(ctx context.Context) error {
					began <- struct{}{}
					fn(ctx)
					return nil
				})
			}()
		}
		for range session.MaxShortTasks {
			run(func(ctx context.Context) {
				<-pause
				s.LeaveSlot(ctx)
				<-goOn
			})
		}
		synctest.Wait()
		for range session.MaxShortTasks + 1 {
			run(func(context.Context) { <-goOn })
		}
		synctest.Wait()
		require.Len(t, began, session.MaxShortTasks)
		close(pause)
		synctest.Wait()
		require.Len(t, began, 2*session.MaxShortTasks)
		close(goOn)
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
	})
}
