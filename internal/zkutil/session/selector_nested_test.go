package session_test

import (
	"context"
	"sync"
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

const innerElection = "/services/billing-shards"

// stopInner are the ways in which a leader's function ends its own inner election before it returns.
var stopInner = map[string]func(ctx context.Context, inner *selector.LeaderSelector) error{
	"Close": func(ctx context.Context, inner *selector.LeaderSelector) error {
		if err := inner.Start(); err != nil {
			return err
		}
		<-ctx.Done()
		return inner.Close()
	},
	"Run": func(ctx context.Context, inner *selector.LeaderSelector) error { return inner.Run(ctx) },
}

// A leader's function takes part in an inner election, and leaves it before it returns. The inner work ends before
// the outer successor begins.
func TestInnerElectionEndsBeforeTheOuterSuccessorLeads(t *testing.T) {
	for name, stop := range stopInner {
		for _, shared := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					srv := zktest.NewServer(t)
					var j elections.Journal
					client := testclient.ConnectSettled(t, srv)
					innerClient := client
					if !shared {
						innerClient = testclient.ConnectSettled(t, srv)
					}
					inner, err := selector.New(innerClient, innerElection, func(ctx context.Context, _ *recipes.Lease) error {
						<-ctx.Done()
						bubble.Pause(elections.Reaction)
						j.Add("inner work ended")
						return nil
					}, selector.WithAutoRequeue())
					require.NoError(t, err)
					outer := elections.StartSelector(t, client, func(ctx context.Context, _ *recipes.Lease) error {
						err := stop(ctx, inner)
						j.Add("outer function returned: %v", err)
						return err
					})
					elections.StartSelector(t, testclient.ConnectSettled(t, srv), j.Leader("successor"))
					bubble.Pass(time.Minute)
					require.Empty(t, j.ReadSettled())
					require.NoError(t, outer.Close())
					bubble.Pass(time.Second)
					require.Equal(t, []string{"inner work ended", "outer function returned: <nil>", "successor leads"}, j.ReadSettled())
				})
			})
		}
	}
}

// Two candidates whose functions close each other wait for one another: for the grace, and
// no longer.
func TestFunctionsThatCloseEachOtherWaitForTheGrace(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.ConnectSettled(t, srv)
		var both [2]*selector.LeaderSelector
		results := make(chan error, 2)
		var leading sync.WaitGroup
		leading.Add(2)
		for i := range both {
			s, err := selector.New(client, elections.Path+string(rune('0'+i)), func(context.Context, *recipes.Lease) error {
				leading.Done()
				leading.Wait()
				results <- both[1-i].Close()
				return nil
			}, selector.WithStepDownGrace(elections.Grace))
			require.NoError(t, err)
			both[i] = s
		}
		start := time.Now()
		for _, s := range both {
			require.NoError(t, s.Start())
		}
		for range both {
			require.ErrorContains(t, <-results, "still running")
		}
		require.WithinDuration(t, start.Add(elections.Grace), time.Now(), time.Second)
	})
}

// Client.Close inside a callback of the client, of any recipe, does not wait for that callback; inside one of another
// client it waits.
func TestClientCloseInsideCallbacks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client, other := testclient.ConnectSettled(t, srv), testclient.ConnectSettled(t, srv)
		work := func(ctx context.Context, _ *recipes.Lease) error {
			<-ctx.Done()
			bubble.Pause(elections.Reaction)
			return nil
		}
		s, err := selector.New(other, innerElection, work)
		require.NoError(t, err)
		require.NoError(t, s.Start())
		bubble.Pass(time.Second)
		took := make(chan time.Duration, 2)
		elections.StartSelector(t, client, func(context.Context, *recipes.Lease) error {
			for _, c := range []*recipes.Client{client, other} {
				start := time.Now()
				if err := c.Close(); err != nil {
					return err
				}
				took <- time.Since(start)
			}
			return nil
		})
		require.Zero(t, <-took, "its own client")
		require.GreaterOrEqual(t, <-took, elections.Reaction, "another client")
	})
}
