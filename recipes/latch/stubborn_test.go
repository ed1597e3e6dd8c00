package latch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// stubborn leads with a listener that ignores the end of its term.
func stubborn(t *testing.T, srv *zktest.Server) (client *recipes.Client, l, successor *latch.LeaderLatch, letGo func()) {
	t.Helper()
	client = testclient.Connect(t, srv)
	done := make(chan struct{})
	l, _ = elections.Lead(t, client, latch.WithStepDownGrace(elections.Grace), latch.WithListener(latch.Listener{
		IsLeader: func(*recipes.Lease) { <-done },
	}), latch.WithCloseMode(latch.NotifyLeader))
	bubble.Pass(0)
	successor = elections.StartLatch(t, testclient.Connect(t, srv))
	<-successor.Decided()
	return client, l, successor, func() { close(done) }
}

func TestCloseDoesNotWaitForeverForAListener(t *testing.T) {
	for name, end := range map[string]func(*latch.LeaderLatch) error{
		"notify": (*latch.LeaderLatch).Close, "silent": closeWith(latch.Silent),
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				_, l, successor, letGo := stubborn(t, srv)
				start := time.Now()
				err := end(l)
				require.ErrorIs(t, err, recipes.ErrStepDownGrace)
				require.ErrorContains(t, err, "latch: close /services/billing: work is still running after 5s")
				require.Equal(t, elections.Grace, time.Since(start))
				require.False(t, l.HasLeadership())
				bubble.Pass(time.Minute)
				require.Len(t, srv.Children(elections.Path), 2, "the znode stays as long as the work goes on")
				require.False(t, successor.HasLeadership())

				letGo()
				elections.Await(t, successor)
				require.NoError(t, end(l))
				require.Len(t, srv.Children(elections.Path), 1)
			})
		})
	}
}

func TestClientCloseDoesNotWaitForeverForAListener(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client, l, successor, letGo := stubborn(t, srv)
		id := elections.SessionOf(client)
		start := time.Now()
		require.ErrorContains(t, client.Close(), "still running")
		require.Equal(t, elections.OperationTimeout, time.Since(start))
		require.ErrorContains(t, l.Close(), "still running")
		srv.Disconnect(id)
		bubble.Pass(time.Minute)
		require.Len(t, srv.Children(elections.Path), 2, "the session lives as long as the work goes on")
		require.False(t, successor.HasLeadership())

		letGo()
		elections.Await(t, successor)
		require.NoError(t, client.Close())
		_, alive := srv.Session(id)
		require.False(t, alive)
		require.NoError(t, l.Close())
	})
}

// The library does not track goroutines started by a callback. Close inside such a goroutine waits as usual, and if
// the callback waits for the goroutine, Close takes the grace.
func TestCloseInAGoroutineThatACallbackWaitsFor(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(client *recipes.Client, l *latch.LeaderLatch) error
		takes time.Duration
	}{
		"latch":  {func(_ *recipes.Client, l *latch.LeaderLatch) error { return l.Close() }, elections.Grace},
		"client": {func(client *recipes.Client, _ *latch.LeaderLatch) error { return client.Close() }, elections.OperationTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.Connect(t, srv)
				l := elections.NewLatch(t, client, latch.WithStepDownGrace(elections.Grace))
				result := make(chan error)
				l.AddListener(latch.Listener{IsLeader: func(*recipes.Lease) {
					start, closed := time.Now(), make(chan error)
					go func() { closed <- c.end(client, l) }() // ends with Close; joined below
					err := <-closed
					if took := time.Since(start); took != c.takes {
						t.Errorf("took %v", took)
					}
					result <- err
				}})
				require.NoError(t, l.Start())
				require.ErrorContains(t, <-result, "still running")
				require.NoError(t, l.Close())
				require.NoError(t, client.Close())
				require.Empty(t, srv.Children(elections.Path))
			})
		})
	}
}

// Inside a callback of another recipe, CloseWith waits for the latch's listeners as in any other
// place, because work after it must not overlap with the latch's successor.
// Client.Close does not wait inside any callback of its client.
func TestCloseInsideCallbacksOfOtherRecipes(t *testing.T) {
	for name, inside := range map[string]func(t *testing.T, client, other *recipes.Client, ask func()){
		"revocation": func(t *testing.T, client, other *recipes.Client, ask func()) {
			t.Helper()
			m, err := mutex.New(client, "/locks/a", mutex.WithRevocationListener(func(*recipes.Lease) { ask() }))
			require.NoError(t, err)
			lease, err := m.Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, revoke.New(other).AttemptRevoke(t.Context(), lease.Path()))
		},
		"leadership": func(t *testing.T, client, _ *recipes.Client, ask func()) {
			t.Helper()
			s, err := selector.New(client, "/services/other", func(context.Context, *recipes.Lease) error {
				ask()
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, s.Start())
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.Connect(t, srv)
				l, term := elections.Lead(t, client, latch.WithListener(latch.Listener{
					IsLeader: func(term *recipes.Lease) { <-term.Context().Done(); bubble.Pause(time.Second) },
				}))
				bubble.Pass(0)
				asked := make(chan struct{})
				inside(t, client, testclient.Connect(t, srv), func() {
					defer close(asked)
					start := time.Now()
					if err := l.Close(); err != nil || time.Since(start) < time.Second {
						t.Errorf("close: %v after %v", err, time.Since(start))
					}
					start = time.Now()
					if err := client.Close(); err != nil || time.Since(start) > 0 {
						t.Errorf("close the client: %v after %v", err, time.Since(start))
					}
				})
				<-asked
				require.NoError(t, l.Close())
				require.Equal(t, recipes.ErrReleased, bubble.Cause(t, term))
				require.NoError(t, client.Close())
				require.Empty(t, srv.Children(elections.Path))
			})
		})
	}
}
