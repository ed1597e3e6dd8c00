package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	tick = 500 * time.Millisecond // of the ensembles, unless a test says otherwise
	// slack is what a busy machine may add to the server's own times.
	slack = time.Second
)

// TestCluster performs an operator's actions on three servers: the cases of Curator's TestLeaderLatchCluster and
// TestLeaderSelectorCluster, and some more.
func TestCluster(t *testing.T) {
	servers := ensemble.New(t, ensemble.Config{Nodes: 3})
	for _, c := range []struct {
		name string
		test func(ctx context.Context, t *testing.T, e *ensemble.Ensemble)
	}{
		{"the leader's server is killed and it finds another", leaderMoves},
		{"the only server that the leader knows is killed", leaderStranded},
		{"the leader's server is killed under the standard policy", leaderSuspended},
		{"rolling restart", rollingRestart},
		{"no quorum for a while", quorumLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			c.test(ctx, t, servers)
		})
	}
}

// back starts a node again, and has all nodes serving.
func back(ctx context.Context, t *testing.T, e *ensemble.Ensemble, node int) {
	t.Helper()
	require.NoError(t, e.StartNode(ctx, node))
	require.NoError(t, e.WaitServing(ctx))
}

// The leader keeps its term, because its session lives on another server.
func leaderMoves(ctx context.Context, t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	long := recipes.WithSessionTimeout(calm)
	c := newContest(t, e, testclient.Dial(t, e.Servers(), long), testclient.Dial(t, e.Servers(), long))
	node := serverOf(t, e, c.leading)
	require.NoError(t, e.Kill(ctx, node))
	c.proven(t)
	require.NotEqual(t, node, serverOf(t, e, c.leading))
	back(ctx, t, e, node)
	c.proven(t)
	c.complete(t)
	c.finish(t)
}

// One new leader, once the session is over. The old one is at the tail when its server is back.
func leaderStranded(ctx context.Context, t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	first, err := e.Leader(ctx)
	require.NoError(t, err)
	node := (first + 1) % 3 // a follower, so that the sessions keep aging
	stranded := testclient.Dial(t, []string{e.Server(node)}, recipes.WithSessionTimeout(sessionTimeout))
	c := newContest(t, e, stranded, testclient.Dial(t, e.Servers(), recipes.WithSessionTimeout(calm)))
	began := time.Now()
	require.NoError(t, e.Kill(ctx, node))
	took := c.succeeded(t, recipes.ErrSessionLost).Sub(began)
	t.Logf("the next leader %v after the kill", took.Round(time.Millisecond))
	require.Less(t, took, sessionTimeout+tick+3*slack)
	back(ctx, t, e, node)
	c.complete(t)
	c.finish(t)
}

// Under Curator's default policy, a disconnect ends the term. The latch leads again with the same znode; the selector's
// znode is deleted after the reconnect.
func leaderSuspended(ctx context.Context, t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	long, standard := recipes.WithSessionTimeout(calm), recipes.WithErrorPolicy(recipes.StandardErrorPolicy)
	c := newContest(t, e, testclient.Dial(t, e.Servers(), long, standard), testclient.Dial(t, e.Servers(), long))
	node := serverOf(t, e, c.leading)
	require.NoError(t, e.Kill(ctx, node))
	for _, one := range c.elections {
		if one.name == "latch" {
			one.resumed(t, recipes.ErrSuspended)
		} else {
			one.succeeded(t, recipes.ErrSuspended)
		}
	}
	c.complete(t)
	back(ctx, t, e, node)
	c.finish(t)
}

// Every server is restarted in turn, and no lease is lost.
func rollingRestart(ctx context.Context, t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	long := recipes.WithSessionTimeout(calm)
	c := newContest(t, e, testclient.Dial(t, e.Servers(), long), testclient.Dial(t, e.Servers(), long))
	for node := range 3 {
		require.NoError(t, e.Stop(ctx, node))
		c.proven(t)
		back(ctx, t, e, node)
		c.proven(t)
	}
	c.complete(t)
	c.finish(t)
}

// Without a quorum the leaders' terms end by their own clock, and no candidate leads. With a quorum one of each
// election does.
func quorumLost(ctx context.Context, t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	c := newContest(t, e, testclient.Dial(t, e.Servers(), recipes.WithSessionTimeout(sessionTimeout)), testclient.Dial(t, e.Servers(), recipes.WithSessionTimeout(sessionTimeout)))
	for node := range 2 {
		require.NoError(t, e.Kill(ctx, node))
	}
	for _, e := range c.elections {
		require.ErrorIs(t, ended(t, e.term), recipes.ErrSessionLost)
		e.leader.follows(t)
		e.follower.follows(t)
	}
	reached(t, c.leading, recipes.Lost)
	for node := range 2 {
		require.NoError(t, e.StartNode(ctx, node))
	}
	require.NoError(t, e.WaitServing(ctx))
	for _, e := range c.elections {
		select { // the servers decide which session survived the outage
		case began := <-e.follower.began:
			e.leader, e.follower, e.term = e.follower, e.leader, began
		case began := <-e.leader.began:
			e.term = began
		case <-ctx.Done():
			require.FailNow(t, "nobody leads")
		}
	}
	c.complete(t)
	c.finish(t)
}
