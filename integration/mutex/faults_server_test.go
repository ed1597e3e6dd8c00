package mutex_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// TestServerDown stops the only server for twice the session timeout.
func TestServerDown(t *testing.T) {
	for name, down := range map[string]func(*ensemble.Ensemble, context.Context, int) error{
		"killed":  (*ensemble.Ensemble).Kill,
		"stopped": (*ensemble.Ensemble).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			servers := ensemble.New(t, ensemble.Config{Private: true})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			path := testkit.Path(t)
			holding, waitingClient := testclient.Dial(t, servers.Servers(), recipes.WithSessionTimeout(sessionTimeout)), testclient.Dial(t, servers.Servers(), recipes.WithSessionTimeout(sessionTimeout))
			holders := newMutex(t, holding, path)
			lease := acquire(t, holders)
			done, waiter := make(chan result, 1), newMutex(t, waitingClient, path)
			go func() {
				lease, err := waiter.Acquire(ctx)
				done <- result{lease, err}
			}()
			testkit.Eventually(t, func() bool { return len(childrenAt(t, servers, path)) == 2 }, "the waiter")

			end := endOf(lease)
			require.NoError(t, down(servers, ctx, 0))
			gone := time.Now()
			require.Less(t, moment(t, end, "the end of the lease").Sub(gone), sessionTimeout)
			require.ErrorIs(t, ended(t, lease), recipes.ErrSessionLost)
			require.Never(t, func() bool { return len(done) > 0 }, time.Until(gone.Add(2*sessionTimeout)), 100*time.Millisecond, "granted without a server")

			require.NoError(t, servers.StartNode(ctx, 0))
			require.NoError(t, servers.WaitServing(ctx, 0))
			successor := granted(t, done)
			require.Greater(t, successor.FencingToken(), lease.FencingToken())
			testkit.Eventually(t, func() bool { return len(childrenAt(t, servers, path)) == 1 }, "no ghost of the former holder or of the waiter")
			require.ErrorIs(t, lease.Release(), recipes.ErrSessionLost)
			require.NoError(t, successor.Release())
			require.NoError(t, acquire(t, holders).Release())
			require.Empty(t, childrenAt(t, servers, path))
		})
	}
}

// childrenAt lists a path on an ensemble of the test's own.
func childrenAt(t *testing.T, servers *ensemble.Ensemble, path string) []string {
	t.Helper()
	conn, _, err := zk.Connect(servers.Servers(), calm, zk.WithLogInfo(false))
	require.NoError(t, err)
	defer conn.Close()
	names, _, err := conn.Children(path)
	if err == zk.ErrNoNode { //nolint:errorlint // zk.Conn returns the value itself
		return nil
	}
	require.NoError(t, err)
	return names
}
