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

// An Acquire ended by its context reports its progress.
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
				holder := bubble.Acquire(t, named(t, srv, "web 1").Acquire)
				second := bubble.Start(t.Context(), named(t, srv, "web 2").Acquire)
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
		holder := bubble.Acquire(t, named(t, srv, "web 1").Acquire)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := named(t, srv, "web 2").Acquire(ctx)
		require.EqualError(t, err, `mutex: acquire /locks/a: not acquired after 5s in position 2, behind "web 1" at `+holder.Path()+": context deadline exceeded")
	})
}

// Without a listing, only the end of the wait is known.
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

// An ended context results in a WaitError as well, from each acquiring call, without a hold and with one, which is
// not re-entered.
func TestWaitErrorOfAnEndedContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		m := named(t, srv, "web 1")
		lease := bubble.Acquire(t, m.Acquire)
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

// A try without an answer of any server is bounded by its context, and reports that nothing was acquired.
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

// The end of the client, a context of an ended hold, and a deadline inside the function of Do are no WaitError.
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

		lease := bubble.Acquire(t, m.Acquire)
		require.NoError(t, lease.Release())
		_, err = m.Acquire(lease.Context()) // whose hold is over, and with it the context
		require.ErrorIs(t, err, recipes.ErrReleased)
		none(err)
		bubble.Acquire(t, m.Acquire)

		client := testclient.Connect(t, srv)
		waiter := bubble.Start(t.Context(), locks.MutexOn(t, client, "/locks/a").Acquire)
		bubble.Pass(time.Second)
		require.NoError(t, client.Close())
		err = (<-waiter).Err
		require.ErrorIs(t, err, recipes.ErrClosed)
		none(err)
	})
}

// The position is that of the last listing. It moves up with the queue.
func TestWaitErrorAfterTheQueueMoved(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first := bubble.Acquire(t, named(t, srv, "web 1").Acquire)
		second := bubble.Start(t.Context(), named(t, srv, "web 2").Acquire)
		bubble.Pass(time.Second)
		leaving, leave := context.WithCancel(t.Context())
		third := bubble.Start(leaving, named(t, srv, "web 3").Acquire)
		bubble.Pass(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		fourth := bubble.Start(ctx, named(t, srv, "web 4").Acquire)
		bubble.Pass(time.Second)
		srv.Disconnect()
		bubble.Pass(time.Second)
		require.NoError(t, first.Release())
		holder := (<-second).Lease
		leave() // after which the one behind looks again
		require.Error(t, (<-third).Err)
		err := (<-fourth).Err
		wait, ok := zkutil.AsType[*recipes.WaitError](err)
		require.True(t, ok)
		require.Equal(t, 2, wait.Position)
		require.Equal(t, holder.Path(), wait.Holder.Path)
		require.Equal(t, "web 2", wait.Holder.ID)
	})
}

// A waiter shows the holder of its latest read. When it moves up to another holder, it no longer shows the earlier one.
func TestHolderOfAWaitErrorIsThatOfTheLatestLook(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first := bubble.Acquire(t, named(t, srv, "first").Acquire)
		second := bubble.Start(t.Context(), named(t, srv, "second").Acquire)
		bubble.Pass(10 * time.Millisecond)
		thirdCtx, leave := context.WithCancel(t.Context())
		third := bubble.Start(thirdCtx, named(t, srv, "third").Acquire)
		bubble.Pass(10 * time.Millisecond)
		last := func(limit time.Duration) <-chan bubble.Outcome[*recipes.Lease] {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			t.Cleanup(cancel)
			return bubble.Start(ctx, named(t, srv, "last").Acquire)
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
		leave() // the last one lists again, because it is directly behind the holder now
		require.ErrorIs(t, (<-third).Err, context.Canceled)
		got := wait()
		require.Equal(t, 2, got.Position)
		require.Equal(t, holder.Path(), got.Holder.Path)
		require.Equal(t, "second", got.Holder.ID)
		require.NoError(t, holder.Release())
	})
}

// TestWaitErrorNamesTheHolderFromEveryPosition requires that all waiters of a client share one read, after a second.
func TestWaitErrorNamesTheHolderFromEveryPosition(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		holder := bubble.Acquire(t, named(t, srv, "web 1").Acquire)
		client := testclient.Connect(t, srv)
		var waiting []<-chan bubble.Outcome[*recipes.Lease]
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		for range 5 {
			waiting = append(waiting, bubble.Start(ctx, locks.MutexOn(t, client, "/locks/a").Acquire))
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

// Waiters without an event send no list. They read the znode of the holder, from the list of their join, once for all of them.
func TestLongWaitsSendNoList(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		holder := bubble.Acquire(t, named(t, srv, "web 1").Acquire)
		client := testclient.Connect(t, srv)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		waiting := make([]<-chan bubble.Outcome[*recipes.Lease], 20)
		for i := range waiting {
			waiting[i] = bubble.Start(ctx, locks.MutexOn(t, client, "/locks/a").Acquire)
		}
		bubble.Pass(100 * time.Millisecond)
		log := srv.Observe()
		bubble.Pass(2 * time.Second)
		reads := slices.DeleteFunc(log.Requests(zktest.OpGetData), func(r zktest.Request) bool { return r.Path != holder.Path() })
		require.LessOrEqual(t, len(reads), 1, "a read for all of them")
		for _, waiter := range waiting {
			wait, ok := zkutil.AsType[*recipes.WaitError]((<-waiter).Err)
			require.True(t, ok)
			require.Equal(t, "web 1", wait.Holder.ID)
		}
		require.Zero(t, log.Count(zktest.OpGetChildren2), "lists after the joins")
		require.NoError(t, holder.Release())
	})
}

// If the holder's znode is deleted by then, the next one is named, with the current position.
func TestWaitErrorNamesTheHolderOfTheSecond(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first := bubble.Acquire(t, named(t, srv, "web 1").Acquire)
		second := bubble.Start(t.Context(), named(t, srv, "web 2").Acquire)
		bubble.Pass(10 * time.Millisecond)
		third := bubble.Start(t.Context(), named(t, srv, "web 3").Acquire)
		bubble.Pass(10 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		fourth := bubble.Start(ctx, named(t, srv, "web 4").Acquire)
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

// Waiters that lost their session join again. The first one's read of the holder is older than the znodes of the others, who do
// not find themselves in it. They still name the holder.
func TestWaitErrorNamesTheHolderAfterALostSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		holder := bubble.Acquire(t, named(t, srv, "web 1").Acquire)
		client := testclient.Connect(t, srv)
		var waiting []<-chan bubble.Outcome[*recipes.Lease]
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for range 5 {
			waiting = append(waiting, bubble.Start(ctx, locks.MutexOn(t, client, "/locks/a").Acquire))
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

// Close ends a wait at once, although the session stands until a function of the user returns.
func TestCloseEndsAWaitBeforeTheSession(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		holder, client := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire), f.Client()
		waiter := f.Waiting(f.Context(), f.Mutex(client))
		started, mayReturn, returned, closed := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan error, 1)
		go func() { // joined below
			returned <- locks.MutexOn(f.T, client, "/other").Do(f.Context(), func(context.Context, *recipes.Lease) error {
				close(started)
				<-mayReturn
				return nil
			})
		}()
		<-started
		go func() { closed <- client.Close() }() // joined below
		bubble.Pass(bubble.Moment)
		select {
		case got := <-waiter:
			require.ErrorIs(f, got.Err, recipes.ErrClosed)
		default:
			f.Error("the wait outlasts the start of Close")
		}
		close(mayReturn)
		require.ErrorIs(f, <-returned, recipes.ErrClosed)
		require.NoError(f, <-closed)
		require.NoError(f, holder.Release())
	})
}
