package queue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// named returns a mutex of a client of its own.
func named(t *testing.T, srv *zktest.Server, id string) *mutex.InterProcessMutex {
	t.Helper()
	m, err := mutex.New(testclient.Connect(t, srv), "/locks/a", mutex.WithID(id))
	require.NoError(t, err)
	return m
}

// An Acquire that its context ended says how far it came.
func TestWaitError(t *testing.T) {
	for name, end := range map[string]struct {
		context func(ctx context.Context) (context.Context, context.CancelFunc)
		is      []error
	}{
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 5*time.Second)
		}, []error{context.DeadlineExceeded}},
		"cancel": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			timer := time.AfterFunc(5*time.Second, func() { cancel(locks.ErrWork) })
			return ctx, func() { timer.Stop() }
		}, []error{context.Canceled, locks.ErrWork}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				holder := locks.Acquire(t, named(t, srv, "web 1"))
				second := locks.Acquiring(t.Context(), named(t, srv, "web 2"))
				bubble.Pass(10 * time.Millisecond)
				ctx, cancel := end.context(t.Context())
				defer cancel()
				_, err := named(t, srv, "web 3").Acquire(ctx)
				for _, is := range end.is {
					require.ErrorIs(t, err, is)
				}
				var op *recipes.OpError
				require.ErrorAs(t, err, &op)
				wait, ok := zkutil.AsType[*recipes.WaitError](op.Err)
				require.True(t, ok)
				require.Equal(t, 3, wait.Position)
				require.Equal(t, holder.Path(), wait.Holder.Path)
				require.Equal(t, "web 1", wait.Holder.ID)
				require.True(t, wait.Holder.Leader)
				require.Equal(t, 5*time.Second, wait.Waited)
				require.NoError(t, holder.Release())
				require.NoError(t, (<-second).Err)
			})
		})
	}
}

func TestWaitErrorText(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		holder := locks.Acquire(t, named(t, srv, "web 1"))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := named(t, srv, "web 2").Acquire(ctx)
		require.EqualError(t, err, `mutex: acquire /locks/a: not acquired after 5s in position 2, behind "web 1" at `+holder.Path()+": context deadline exceeded")
	})
}

// Without a look at the queue nothing is known of it, but that the wait has ended.
func TestWaitErrorWithoutAServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		m := named(t, srv, "web 1")
		srv.Stop()
		bubble.Pass(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := m.Acquire(ctx)
		wait, ok := zkutil.AsType[*recipes.WaitError](err)
		require.True(t, ok)
		require.Zero(t, wait.Position)
		require.Zero(t, wait.Holder)
		require.ErrorIs(t, wait, context.DeadlineExceeded)
		require.Contains(t, err.Error(), "not acquired after 5s: create: context deadline exceeded")
	})
}

// A context that has ended already gives a WaitError as well, from each of the calls that acquire:
// without a hold, and with one, which is not entered once more.
func TestWaitErrorOfAnEndedContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		m := named(t, srv, "web 1")
		lease := locks.Acquire(t, m)
		for name, parent := range map[string]context.Context{"first": t.Context(), "re-entry": lease.Context()} {
			late, cancel := context.WithTimeout(parent, time.Second)
			defer cancel()
			withdrawn, withdraw := context.WithCancelCause(parent)
			withdraw(locks.ErrWork)
			bubble.Pass(time.Second)
			for what, ended := range map[string]struct {
				ctx context.Context
				is  []error
			}{
				"deadline": {late, []error{context.DeadlineExceeded}},
				"cause":    {withdrawn, []error{context.Canceled, locks.ErrWork}},
			} {
				for op, call := range map[string]func(context.Context) error{
					"mutex: acquire":     func(ctx context.Context) error { _, err := m.Acquire(ctx); return err },
					"mutex: try acquire": func(ctx context.Context) error { _, err := m.TryAcquire(ctx); return err },
					"mutex: do": func(ctx context.Context) error {
						return m.Do(ctx, func(context.Context, *recipes.Lease) error { t.Error("called"); return nil })
					},
				} {
					err := call(ended.ctx)
					for _, is := range ended.is {
						require.ErrorIs(t, err, is, "%s, %s, %s", name, what, op)
					}
					wait, ok := zkutil.AsType[*recipes.WaitError](err)
					require.True(t, ok, "%s, %s, %s: %v", name, what, op, err)
					require.Zero(t, wait.Position)
					require.Zero(t, wait.Waited)
				}
			}
		}
		require.NoError(t, lease.Context().Err())
		require.NoError(t, lease.Release())
		require.Empty(t, srv.Children("/locks/a"))
	})
}

// A try that no server answers is bounded by its context, and says that nothing was acquired.
func TestWaitErrorOfATry(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		m := named(t, srv, "web 1")
		defer srv.Delay(zktest.OpCreateContainer, time.Hour)()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := m.TryAcquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		wait, ok := zkutil.AsType[*recipes.WaitError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, 5*time.Second, wait.Waited)
	})
}

// What ends otherwise is no WaitError: a try that finds another holder, the end of the client, a
// context of an ended hold, and a deadline inside the function of Do.
func TestNoWaitError(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		m := named(t, srv, "web 1")
		none := func(err error) {
			t.Helper()
			require.Error(t, err)
			_, ok := zkutil.AsType[*recipes.WaitError](err)
			require.False(t, ok, "%v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := m.Do(ctx, func(ctx context.Context, _ *recipes.Lease) error {
			<-ctx.Done()
			return ctx.Err()
		})
		require.Equal(t, context.DeadlineExceeded, err)
		none(err)

		lease := locks.Acquire(t, m)
		_, err = named(t, srv, "web 2").TryAcquire(t.Context())
		none(err)
		require.NoError(t, lease.Release())
		_, err = m.Acquire(lease.Context()) // whose hold has ended, and with it the context
		require.ErrorIs(t, err, recipes.ErrReleased)
		none(err)
		locks.Acquire(t, m)

		client := testclient.Connect(t, srv)
		waiter := locks.Acquiring(t.Context(), locks.MutexOn(t, client, "/locks/a"))
		bubble.Pass(time.Second)
		require.NoError(t, client.Close())
		err = (<-waiter).Err
		require.ErrorIs(t, err, recipes.ErrClosed)
		none(err)
	})
}

// The position is that of the last look: it moves up with the queue.
func TestWaitErrorAfterTheQueueMoved(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first := locks.Acquire(t, named(t, srv, "web 1"))
		second := locks.Acquiring(t.Context(), named(t, srv, "web 2"))
		bubble.Pass(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		third := locks.Acquiring(ctx, named(t, srv, "web 3"))
		bubble.Pass(time.Second)
		srv.Disconnect() // after which everybody looks again
		bubble.Pass(time.Second)
		require.NoError(t, first.Release())
		holder := (<-second).Lease
		srv.Disconnect()
		err := (<-third).Err
		wait, ok := zkutil.AsType[*recipes.WaitError](err)
		require.True(t, ok)
		require.Equal(t, 2, wait.Position)
		require.Equal(t, holder.Path(), wait.Holder.Path)
		require.Equal(t, "web 2", wait.Holder.ID)
	})
}

// What a waiter has read of the holder is that of its latest look: when it moves up to another holder, it does not go on to
// show the one before.
func TestHolderOfAWaitErrorIsThatOfTheLatestLook(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first := locks.Acquire(t, named(t, srv, "first"))
		second := locks.Acquiring(t.Context(), named(t, srv, "second"))
		bubble.Pass(10 * time.Millisecond)
		thirdCtx, leave := context.WithCancel(t.Context())
		third := locks.Acquiring(thirdCtx, named(t, srv, "third"))
		bubble.Pass(10 * time.Millisecond)
		last := func(limit time.Duration) <-chan locks.Result {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			t.Cleanup(cancel)
			return locks.Acquiring(ctx, named(t, srv, "last"))
		}
		waiting := last(time.Minute)
		bubble.Pass(10 * time.Millisecond)
		wait := func() *recipes.WaitError {
			got, ok := zkutil.AsType[*recipes.WaitError]((<-waiting).Err)
			require.True(t, ok)
			return got
		}
		require.NoError(t, first.Release())
		holder := (<-second).Lease
		leave() // the last one looks again: it is directly behind the holder now
		require.ErrorIs(t, (<-third).Err, context.Canceled)
		got := wait()
		require.Equal(t, 2, got.Position)
		require.Equal(t, holder.Path(), got.Holder.Path)
		require.Equal(t, "second", got.Holder.ID)
		require.NoError(t, holder.Release())
	})
}

// TestWaitErrorNamesTheHolderFromEveryPosition: all waiters of a client share one read, which comes after a second.
func TestWaitErrorNamesTheHolderFromEveryPosition(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		holder := locks.Acquire(t, named(t, srv, "web 1"))
		client := testclient.Connect(t, srv)
		var waiting []<-chan locks.Result
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		for range 5 {
			waiting = append(waiting, locks.Acquiring(ctx, locks.MutexOn(t, client, "/locks/a")))
			bubble.Pass(10 * time.Millisecond)
		}
		bubble.Pass(100 * time.Millisecond)
		log := srv.Observe()
		for i, waiter := range waiting {
			wait, ok := zkutil.AsType[*recipes.WaitError]((<-waiter).Err)
			require.True(t, ok)
			require.Equal(t, 2+i, wait.Position)
			require.Equal(t, "web 1", wait.Holder.ID)
			require.Contains(t, wait.Error(), `behind "web 1" at `+holder.Path())
		}
		reads := slices.DeleteFunc(log.Requests(zktest.OpGetData), func(r zktest.Request) bool { return r.Path != holder.Path() })
		require.LessOrEqual(t, len(reads), 1, "a read for all of them")
		require.NoError(t, holder.Release())
	})
}

// When the holder has gone by then, the next one is named, and the position is the present one.
func TestWaitErrorNamesTheHolderOfTheSecond(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first := locks.Acquire(t, named(t, srv, "web 1"))
		second := locks.Acquiring(t.Context(), named(t, srv, "web 2"))
		bubble.Pass(10 * time.Millisecond)
		third := locks.Acquiring(t.Context(), named(t, srv, "web 3"))
		bubble.Pass(10 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		fourth := locks.Acquiring(ctx, named(t, srv, "web 4"))
		bubble.Pass(500 * time.Millisecond)
		require.NoError(t, first.Release())
		holder := (<-second).Lease
		wait, ok := zkutil.AsType[*recipes.WaitError]((<-fourth).Err)
		require.True(t, ok)
		require.Equal(t, 3, wait.Position)
		require.Equal(t, "web 2", wait.Holder.ID)
		require.Equal(t, holder.Path(), wait.Holder.Path)
		require.NoError(t, holder.Release())
		require.NoError(t, (<-third).Lease.Release())
	})
}

// Waiters that have lost their session join again. The read of the holder that the first of them makes is older than the znodes of the
// others, who do not find themselves in it: they are named the holder all the same.
func TestWaitErrorNamesTheHolderAfterALostSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		holder := locks.Acquire(t, named(t, srv, "web 1"))
		client := testclient.Connect(t, srv)
		var waiting []<-chan locks.Result
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for range 5 {
			waiting = append(waiting, locks.Acquiring(ctx, locks.MutexOn(t, client, "/locks/a")))
			bubble.Pass(10 * time.Millisecond)
		}
		bubble.Pass(2 * time.Second)
		srv.Expire(client.Conn().SessionID())
		log := srv.Observe()
		for _, waiter := range waiting {
			wait, ok := zkutil.AsType[*recipes.WaitError]((<-waiter).Err)
			require.True(t, ok)
			require.Equal(t, holder.Path(), wait.Holder.Path)
			require.Equal(t, "web 1", wait.Holder.ID)
		}
		reads := slices.DeleteFunc(log.Requests(zktest.OpGetData), func(r zktest.Request) bool { return r.Path != holder.Path() })
		require.LessOrEqual(t, len(reads), 3, "of the waiter right behind, with a watch; of the first waiter that joins again; and for all the others")
		require.NoError(t, holder.Release())
	})
}
