package session_test

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
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A function ignores the end of its term. No call waits for it forever, and its znode stays until it returns.
func TestNothingWaitsForeverForTheFunction(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(client *recipes.Client, s *selector.LeaderSelector) error
		takes time.Duration
		want  string
	}{
		"Close": {
			func(_ *recipes.Client, s *selector.LeaderSelector) error { return s.Close() },
			elections.Grace, "selector: close " + elections.Path + ": work is still running after 5s",
		},
		"Client.Close": {
			func(client *recipes.Client, _ *selector.LeaderSelector) error { return client.Close() },
			elections.OperationTimeout, "the session ends when it returns",
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.ConnectSettled(t, srv)
				done := make(chan struct{})
				s := elections.StartSelector(t, client, func(context.Context, *recipes.Lease) error { <-done; return nil },
					selector.WithStepDownGrace(elections.Grace), selector.WithAutoRequeue())
				successor := elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle)
				start := time.Now()
				require.ErrorContains(t, c.end(client, s), c.want)
				require.Equal(t, c.takes, time.Since(start))
				require.False(t, s.HasLeadership())
				srv.Disconnect(elections.SessionOf(client))
				bubble.Pass(time.Minute)
				require.Len(t, srv.Children(elections.Path), 2)
				require.False(t, successor.HasLeadership())

				close(done)
				bubble.Pass(time.Second)
				require.True(t, successor.HasLeadership())
				require.Len(t, srv.Children(elections.Path), 1)
				require.NoError(t, c.end(client, s))
			})
		})
	}
}

// Interrupted, or lost, a stubborn function continues. Its selector joins again only after it returns.
func TestNoNewTermWhileTheFunctionRuns(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.ConnectSettled(t, srv)
		next := make(chan struct{})
		s := elections.StartSelector(t, client, func(context.Context, *recipes.Lease) error { <-next; return nil }, selector.WithAutoRequeue())
		for _, end := range []func(){s.InterruptLeadership, func() { srv.Expire(elections.SessionOf(client)) }} {
			require.True(t, s.HasLeadership())
			end()
			bubble.Pass(time.Minute)
			require.False(t, s.HasLeadership())
			next <- struct{}{}
			bubble.Pass(time.Second)
		}
		require.True(t, s.HasLeadership())
		close(next)
		require.NoError(t, s.Close())
	})
}

// The library does not track goroutines started by the function. Close inside such a goroutine waits as usual, and if
// the function waits for the goroutine, Close takes the grace.
func TestCloseInAGoroutineThatTheFunctionWaitsFor(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var s *selector.LeaderSelector
		result := make(chan error)
		s = elections.NewSelector(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error {
			start, closed := time.Now(), make(chan error)
			go func() { closed <- s.Close() }() // ends with Close; joined below
			err := <-closed
			if time.Since(start) != elections.Grace {
				t.Errorf("took %v", time.Since(start))
			}
			result <- err
			return nil
		}, selector.WithStepDownGrace(elections.Grace))
		require.NoError(t, s.Start())
		require.ErrorContains(t, <-result, "still running")
		require.NoError(t, s.Close())
		require.Empty(t, srv.Children(elections.Path))
	})
}
