package latch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// If a session ends with its connection, the next participant leads within about a second of the disconnect, but not before the
// leader's listener returns.
func TestLeaderLosesItsConnectionToAClickHouseKeeper(t *testing.T) {
	for _, policy := range []recipes.ErrorPolicy{recipes.SessionErrorPolicy, recipes.StandardErrorPolicy} {
		for _, cleanUp := range []time.Duration{0, 5 * time.Second} {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t, zktest.WithDialect(zktest.ClickHouseKeeper))
				options := []recipes.Option{recipes.WithErrorPolicy(policy), recipes.WithSessionTimeout(30 * time.Second)}
				leader, standby := testclient.Connect(t, srv, options...), testclient.Connect(t, srv, options...)
				_, term := elections.Lead(t, leader, latch.WithListener(latch.Listener{NotLeader: func() { bubble.Pass(cleanUp) }}))
				next, err := latch.New(standby, elections.Path)
				require.NoError(t, err)
				require.NoError(t, next.Start())
				defer func() { require.NoError(t, next.Close()) }()
				bubble.Pass(10 * time.Second)
				start := time.Now()
				srv.Disconnect(elections.SessionOf(leader))
				cause := recipes.ErrSessionLost
				if policy == recipes.StandardErrorPolicy {
					cause = recipes.ErrSuspended
				}
				require.ErrorIs(t, bubble.Cause(t, term), cause)
				require.Equal(t, start, time.Now())
				elections.Await(t, next)
				took := time.Since(start)
				require.Less(t, took, cleanUp+1500*time.Millisecond)
				require.GreaterOrEqual(t, took, cleanUp)
			})
		}
	}
}
