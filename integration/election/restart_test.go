package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// TestRestart is about elections on a single server that restarts.
func TestRestart(t *testing.T) {
	server := ensemble.New(t, ensemble.Config{Private: true})
	for _, c := range []struct {
		name string
		test func(ctx context.Context, t *testing.T, e *ensemble.Ensemble)
	}{
		{"no server at the start", noServerAtStart},
		{"no server while entering", noServerOnEntering},
		{"back in time", backInTime},
		{"back too late", backTooLate},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			c.test(ctx, t, server)
		})
	}
}

// opened returns a client whose server need not be there yet.
func opened(t *testing.T, server string) *recipes.Client {
	t.Helper()
	client, err := recipes.Open([]string{server}, recipes.WithSessionTimeout(sessionTimeout))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// enterBoth enters an election of each recipe.
func enterBoth(t *testing.T, client *recipes.Client, path, id string) []*member {
	t.Helper()
	var members []*member
	for _, r := range both {
		members = append(members, r.enter(t, client, path+"/"+r.name, id))
	}
	return members
}

// Candidates started without a server are elected once one is up.
func noServerAtStart(ctx context.Context, t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	require.NoError(t, e.Kill(ctx, 0))
	members := enterBoth(t, opened(t, e.Server(0)), testkit.Path(t), "early")
	for _, m := range members {
		m.follows(t)
	}
	back(ctx, t, e, 0)
	for _, m := range members {
		m.lead(t)
		require.True(t, m.HasLeadership())
		require.NoError(t, m.Close())
	}
}

// So are candidates started during an outage.
func noServerOnEntering(ctx context.Context, t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	client := testclient.Dial(t, e.Servers(), recipes.WithSessionTimeout(sessionTimeout))
	require.NoError(t, e.Kill(ctx, 0))
	members := enterBoth(t, client, testkit.Path(t), "early")
	for _, m := range members {
		m.follows(t)
	}
	back(ctx, t, e, 0)
	for _, m := range members {
		m.lead(t)
		require.NoError(t, m.Close())
	}
}

// restartable is a session timeout for a restart on a busy machine, which can take 20 s. A lease is trusted for two thirds of it after
// its last write, which is up to a sixth old.
const restartable = 45 * time.Second

// A restart that is shorter than the time for which a session is trusted changes nothing.
func backInTime(ctx context.Context, t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	long := recipes.WithSessionTimeout(restartable)
	c := newContest(t, e, testclient.Dial(t, e.Servers(), long), testclient.Dial(t, e.Servers(), long))
	require.NoError(t, e.Kill(ctx, 0))
	back(ctx, t, e, 0)
	c.proven(t)
	c.complete(t)
	c.finish(t)
}

// After a longer outage the selector has requeued and the latch has joined again, by themselves.
func backTooLate(ctx context.Context, t *testing.T, e *ensemble.Ensemble) {
	t.Helper()
	client := testclient.Dial(t, e.Servers(), recipes.WithSessionTimeout(sessionTimeout))
	members := enterBoth(t, client, testkit.Path(t), "the only one")
	var terms []term
	for _, m := range members {
		terms = append(terms, m.lead(t))
	}
	require.NoError(t, e.Kill(ctx, 0))
	for i, m := range members {
		require.ErrorIs(t, ended(t, terms[i]), recipes.ErrSessionLost)
		m.follows(t)
	}
	reached(t, client, recipes.Lost)
	back(ctx, t, e, 0)
	for i, m := range members {
		require.Greater(t, m.lead(t).FencingToken(), terms[i].FencingToken())
		require.True(t, m.HasLeadership())
		require.Len(t, ids(t, m), 1)
		require.NoError(t, m.Close())
	}
}
