package latch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

var (
	errChangedMind = errors.New("changed my mind")
	errTooLate     = errors.New("too late")
)

// Every way out of Await but leadership. The error of the context and its cause both match.
func TestAwaitEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, client *recipes.Client, l *latch.LeaderLatch, cancel context.CancelCauseFunc)
		want []error
		text string
	}{
		"context cancelled": {func(_ *testing.T, _ *recipes.Client, _ *latch.LeaderLatch, cancel context.CancelCauseFunc) {
			cancel(nil)
		}, []error{context.Canceled}, "context canceled"},
		"context cancelled with a cause": {func(_ *testing.T, _ *recipes.Client, _ *latch.LeaderLatch, cancel context.CancelCauseFunc) {
			cancel(errChangedMind)
		}, []error{context.Canceled, errChangedMind}, "context canceled: changed my mind"},
		"latch closed": {func(t *testing.T, _ *recipes.Client, l *latch.LeaderLatch, _ context.CancelCauseFunc) {
			t.Helper()
			require.NoError(t, l.Close())
		}, []error{recipes.ErrClosed}, "the latch is closed"},
		"client closed": {func(t *testing.T, client *recipes.Client, _ *latch.LeaderLatch, _ context.CancelCauseFunc) {
			t.Helper()
			require.NoError(t, client.Close())
		}, []error{recipes.ErrClosed}, "the client is closed"},
		"deadline with a cause": {func(*testing.T, *recipes.Client, *latch.LeaderLatch, context.CancelCauseFunc) {
			pass(time.Minute)
		}, []error{context.DeadlineExceeded, errTooLate}, "context deadline exceeded: too late"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				lead(t, testclient.Connect(t, srv))
				client := testclient.Connect(t, srv)
				l := enter(t, client)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				ctx, stop := context.WithTimeoutCause(ctx, time.Minute, errTooLate)
				defer stop()
				var group sync.WaitGroup
				var results [3]error
				for i := range results {
					group.Go(func() { _, results[i] = l.Await(ctx) }) // ends with Await; joined below
				}
				pass(time.Second)
				c.end(t, client, l, cancel)
				group.Wait()
				for _, err := range results {
					for _, want := range c.want {
						require.ErrorIs(t, err, want)
					}
					require.EqualError(t, err, "latch: await "+election+": "+c.text)
					var failed *recipes.OpError
					require.ErrorAs(t, err, &failed)
					require.Equal(t, "latch: await", failed.Op)
					require.Equal(t, election, failed.Path)
				}
			})
		})
	}
}

// What has been closed says so, whether or not it was started before: at once, by Await, Start
// and Err.
func TestClosedLatchSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, client *recipes.Client) *latch.LeaderLatch
		end     func(client *recipes.Client, l *latch.LeaderLatch) error
		text    string
	}{
		"never started":        {unstarted, endLatch, "the latch is closed"},
		"started":              {started, endLatch, "the latch is closed"},
		"never started client": {unstarted, endClient, "the client is closed"},
		"started client":       {started, endClient, "the client is closed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.Connect(t, srv)
				l := c.prepare(t, client)
				require.NoError(t, c.end(client, l))
				start := time.Now()
				_, awaited := l.Await(t.Context())
				for op, err := range map[string]error{"await": awaited, "start": l.Start(), "join": l.Err()} {
					require.ErrorIs(t, err, recipes.ErrClosed)
					require.EqualError(t, err, "latch: "+op+" "+election+": "+c.text)
				}
				require.Equal(t, start, time.Now())
				require.NoError(t, l.Close(), "which changes nothing")
			})
		})
	}
}

func unstarted(t *testing.T, client *recipes.Client) *latch.LeaderLatch {
	t.Helper()
	return create(t, client)
}

func started(t *testing.T, client *recipes.Client) *latch.LeaderLatch {
	t.Helper()
	l, _ := lead(t, client)
	return l
}

func endLatch(_ *recipes.Client, l *latch.LeaderLatch) error       { return l.Close() }
func endClient(client *recipes.Client, _ *latch.LeaderLatch) error { return client.Close() }

// The client is closed while a listener does not return from a term that is lost: a caller that
// waits for the next term need not wait for the listener.
func TestAwaitDoesNotWaitForAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client, l, _, letGo := stubborn(t, srv)
		term, _ := l.Leadership()
		srv.Delete(term.Path())
		require.ErrorIs(t, ended(t, term), recipes.ErrNodeDeleted)
		start := time.Now()
		go func() { // ends with Close; joined by the second one
			_ = client.Close()
		}()
		_, err := l.Await(t.Context())
		require.ErrorIs(t, err, recipes.ErrClosed)
		require.Equal(t, start, time.Now())
		letGo()
		require.NoError(t, client.Close())
	})
}

func TestAwaitReturnsATermThatStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		l, term := lead(t, testclient.Connect(t, srv))
		again, err := l.Await(t.Context())
		require.NoError(t, err)
		require.Equal(t, term, again, "at once, and the same")
		require.NoError(t, term.Release())
		next := await(t, l)
		require.NoError(t, next.Context().Err())
		require.Greater(t, next.FencingToken(), term.FencingToken())
		require.ErrorIs(t, term.Release(), recipes.ErrNotHeld)
		require.NoError(t, next.Context().Err(), "an old term can't end the present one")
	})
}

func TestHasLeadershipGoesByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l, term := lead(t, client)
		srv.Partition(sessionOf(client))
		pass(time.Until(term.TrustedUntil()) - 1)
		require.True(t, l.HasLeadership())
		pause(time.Nanosecond)
		require.False(t, l.HasLeadership(), "whether or not anybody has been told yet")
		_, leads := l.Leadership()
		require.False(t, leads)
		require.Error(t, term.Context().Err())
		srv.Heal()
	})
}

func isDecided(l *latch.LeaderLatch) bool {
	synctest.Wait()
	select {
	case <-l.Decided():
		return true
	default:
		return false
	}
}

func TestDecidedOnceItIsKnownWhetherTheLatchLeads(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate2, zktest.OpGetChildren2} {
		t.Run(op.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				srv.Put(election, nil)
				defer srv.Delay(op, time.Second)()
				for _, leads := range []bool{true, false} {
					l := create(t, testclient.Connect(t, srv))
					pass(time.Second)
					require.False(t, isDecided(l), "not started")
					require.NoError(t, l.Start())
					pass(time.Second - 1)
					require.False(t, isDecided(l), "not answered")
					pass(1)
					require.True(t, isDecided(l))
					require.Equal(t, leads, l.HasLeadership())
				}
			})
		})
	}
}

func TestDecidedWhenThereWillBeNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		never := create(t, client)
		require.NoError(t, never.Close())
		require.True(t, isDecided(never))

		srv.Delay(zktest.OpCreate2, time.Minute)
		closed, abandoned := enter(t, client), enter(t, client)
		require.False(t, isDecided(closed))
		go func() { _ = closed.Close() }() // ends with the client
		require.True(t, isDecided(closed))
		require.NoError(t, client.Close())
		require.True(t, isDecided(abandoned))
	})
}

// A context that has ended gets no term, although the latch leads.
func TestAwaitWithAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := lead(t, testclient.Connect(t, zktest.NewServer(t)))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errChangedMind)
		_, err := l.Await(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errChangedMind)
	})
}

// Close leaves the znode to a client that is being closed: it goes with the session.
func TestCloseWhileTheClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l, _ := lead(t, client)
		srv.Partition(sessionOf(client))
		pass(100 * time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- client.Close() }()
		synctest.Wait()
		require.NoError(t, l.Close())
		require.Len(t, paths(srv), 1)
		srv.Heal()
		require.NoError(t, <-closed)
		require.Eventually(t, func() bool { return len(paths(srv)) == 0 }, time.Minute, time.Second)
	})
}
