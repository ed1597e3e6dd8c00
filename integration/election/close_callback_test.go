package election_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Before there is a session, Close need not wait, and started candidates never join.
func TestCloseBeforeTheSession(t *testing.T) {
	eachRecipe(t, func(t *testing.T, r recipe) {
		t.Helper()
		proxy, path := faultproxy.New(t, ensemble.Shared(t).Server(0)), testkit.Path(t)
		proxy.Refuse(true)
		client := opened(t, proxy.Addr())
		m := r.join(t, client, path, "early")
		require.NoError(t, m.Start())
		began := time.Now()
		require.NoError(t, m.Close())
		require.Less(t, time.Since(began), 3*slack)
		require.Error(t, m.Start())
		proxy.Refuse(false)
		testkit.Eventually(t, func() bool { return client.Conn().State() == zk.StateHasSession }, "the session")
		later := r.enter(t, client, path, "later")
		later.lead(t)
		require.Len(t, children(t, observer(t), path), 1)
	})
}

// Inside the leader's work, Close and Release only ask. The znode is deleted after the work returns, and not before.
func TestEndFromInside(t *testing.T) {
	for _, way := range []struct {
		name string
		end  func(client *recipes.Client, p participant, lease *recipes.Lease) error
	}{
		{"Close", func(_ *recipes.Client, p participant, _ *recipes.Lease) error { return p.Close() }},
		{"Release", func(_ *recipes.Client, _ participant, lease *recipes.Lease) error { return lease.Release() }},
		{"Client.Close", func(client *recipes.Client, _ participant, _ *recipes.Lease) error { return client.Close() }},
	} {
		t.Run(way.name, func(t *testing.T) {
			eachRecipe(t, func(t *testing.T, r recipe) {
				t.Helper()
				path, client := testkit.Path(t), direct(t)
				begun, finish := make(chan *recipes.Lease), make(chan struct{})
				asked := make(chan error, 1)
				made := make(chan participant, 1)
				p, err := r.create(client, path, "inside", func(lease *recipes.Lease) {
					begun <- lease
					asked <- way.end(client, <-made, lease)
					<-finish
				})
				require.NoError(t, err)
				made <- p
				require.NoError(t, p.Start())
				lease := <-begun
				next := r.enter(t, direct(t), path, "next")
				testkit.Eventually(t, func() bool { return len(children(t, observer(t), path)) >= 2 }, "both")
				require.NoError(t, <-asked)
				require.ErrorIs(t, ended(t, term{Lease: lease}), map[bool]error{false: recipes.ErrReleased, true: recipes.ErrClosed}[way.name == "Client.Close"])
				require.False(t, p.HasLeadership())
				ok, _, err := observer(t).Exists(lease.Path())
				require.NoError(t, err)
				require.True(t, ok, "the znode stays while the work runs")
				next.follows(t)
				close(finish)
				require.Greater(t, next.lead(t).FencingToken(), lease.FencingToken())
				require.NoError(t, p.Close())
				require.NoError(t, next.Close())
				require.Empty(t, children(t, observer(t), path))
			})
		})
	}
}
