package latch_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
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
			bubble.Pass(time.Minute)
		}, []error{context.DeadlineExceeded, errTooLate}, "context deadline exceeded: too late"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				elections.Lead(t, testclient.Connect(t, srv))
				client := testclient.Connect(t, srv)
				l := elections.StartLatch(t, client)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				ctx, stop := context.WithTimeoutCause(ctx, time.Minute, errTooLate)
				defer stop()
				var group sync.WaitGroup
				var results [3]error
				for i := range results {
					group.Go(func() { _, results[i] = l.Await(ctx) }) // ends with Await; joined below
				}
				bubble.Pass(time.Second)
				c.end(t, client, l, cancel)
				group.Wait()
				for _, err := range results {
					for _, want := range c.want {
						require.ErrorIs(t, err, want)
					}
					text := err.Error()
					if wait, isWait := zkutil.AsType[*recipes.WaitError](err); isWait {
						text = strings.Replace(text, wait.Error(), wait.Err.Error(), 1)
					}
					require.Equal(t, "latch: await "+elections.Path+": "+c.text, text)
					var failed *recipes.OpError
					require.ErrorAs(t, err, &failed)
					require.Equal(t, "latch: await", failed.Op)
					require.Equal(t, elections.Path, failed.Path)
				}
			})
		})
	}
}

// A closed latch says so at once, in Await, Start and Err, whether or not it was started.
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
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.Connect(t, srv)
				l := c.prepare(t, client)
				require.NoError(t, c.end(client, l))
				start := time.Now()
				_, awaited := l.Await(t.Context())
				for op, err := range map[string]error{"await": awaited, "start": l.Start(), "join": l.Err()} {
					require.ErrorIs(t, err, recipes.ErrClosed)
					require.EqualError(t, err, "latch: "+op+" "+elections.Path+": "+c.text)
				}
				require.Equal(t, start, time.Now())
				require.NoError(t, l.Close(), "which changes nothing")
			})
		})
	}
}

func unstarted(t *testing.T, client *recipes.Client) *latch.LeaderLatch {
	t.Helper()
	return elections.NewLatch(t, client)
}

func started(t *testing.T, client *recipes.Client) *latch.LeaderLatch {
	t.Helper()
	l, _ := elections.Lead(t, client)
	return l
}

func endLatch(_ *recipes.Client, l *latch.LeaderLatch) error       { return l.Close() }
func endClient(client *recipes.Client, _ *latch.LeaderLatch) error { return client.Close() }

// The client is closed while a listener does not return from a lost term. A caller that waits for the next term does
// not wait for the listener.
func TestAwaitDoesNotWaitForAListener(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client, l, _, letGo := stubborn(t, srv)
		term, _ := l.Leadership()
		srv.Delete(term.Path())
		require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrNodeDeleted)
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
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		l, term := elections.Lead(t, testclient.Connect(t, srv))
		again, err := l.Await(t.Context())
		require.NoError(t, err)
		require.Equal(t, term, again, "at once, and the same")
		require.NoError(t, term.Release())
		next := elections.Await(t, l)
		require.NoError(t, next.Context().Err())
		require.Greater(t, next.FencingToken(), term.FencingToken())
		require.ErrorIs(t, term.Release(), recipes.ErrNotHeld)
		require.NoError(t, next.Context().Err(), "an old term can't end the present one")
	})
}

func TestHasLeadershipComparesTheClock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l, term := elections.Lead(t, client)
		srv.Partition(elections.SessionOf(client))
		bubble.Pass(time.Until(term.TrustedUntil()) - 1)
		require.True(t, l.HasLeadership())
		bubble.Pause(time.Nanosecond)
		require.False(t, l.HasLeadership(), "whether or not anybody has been told yet")
		_, leads := l.Leadership()
		require.False(t, leads)
		require.Error(t, term.Context().Err())
		srv.Heal()
	})
}

func TestDecidedOnceItIsKnownWhetherTheLatchLeads(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate2, zktest.OpGetChildren2} {
		t.Run(op.String(), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				srv.Put(elections.Path, nil)
				defer srv.Delay(op, time.Second)()
				for _, leads := range []bool{true, false} {
					l := elections.NewLatch(t, testclient.Connect(t, srv))
					bubble.Pass(time.Second)
					require.False(t, elections.IsDecided(l), "not started")
					require.NoError(t, l.Start())
					bubble.Pass(time.Second - 1)
					require.False(t, elections.IsDecided(l), "not answered")
					bubble.Pass(1)
					require.True(t, elections.IsDecided(l))
					require.Equal(t, leads, l.HasLeadership())
				}
			})
		})
	}
}

func TestDecidedWhenThereWillBeNoAnswer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		never := elections.NewLatch(t, client)
		require.NoError(t, never.Close())
		require.True(t, elections.IsDecided(never))

		srv.Delay(zktest.OpCreate2, time.Minute)
		closed, abandoned := elections.StartLatch(t, client), elections.StartLatch(t, client)
		require.False(t, elections.IsDecided(closed))
		go func() { _ = closed.Close() }() // ends with the client
		require.True(t, elections.IsDecided(closed))
		require.NoError(t, client.Close())
		require.True(t, elections.IsDecided(abandoned))
	})
}

// A context that is over gets no term, even from a leading latch.
func TestAwaitWithAnEndedContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l, _ := elections.Lead(t, testclient.Connect(t, zktest.NewServer(t)))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errChangedMind)
		_, err := l.Await(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errChangedMind)
	})
}

// During the client's Close, Close of the latch leaves the znode to the client, which ends the session.
func TestCloseWhileTheClientIsClosed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l, _ := elections.Lead(t, client)
		srv.Partition(elections.SessionOf(client))
		bubble.Pass(100 * time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- client.Close() }()
		synctest.Wait()
		require.NoError(t, l.Close())
		require.Len(t, elections.Paths(srv), 1)
		srv.Heal()
		require.NoError(t, <-closed)
		require.Eventually(t, func() bool { return len(elections.Paths(srv)) == 0 }, time.Minute, time.Second)
	})
}
