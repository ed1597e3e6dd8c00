package mutex_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// TestEnsemble performs an operator's actions on three servers. A lease survives all of them, and a waiter keeps its
// place.
func TestEnsemble(t *testing.T) {
	servers := ensemble.New(t, ensemble.Config{Nodes: 3})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()

	// back has all nodes serving again.
	back := func(t *testing.T, node int) {
		t.Helper()
		require.NoError(t, servers.StartNode(ctx, node))
		require.NoError(t, servers.WaitServing(ctx))
	}
	cases := []struct {
		name  string
		fault func(t *testing.T, q *threeNodeQueue)
	}{
		{"the holder's server is killed", func(t *testing.T, q *threeNodeQueue) {
			t.Helper()
			node := serverOf(t, servers, q.holding)
			require.NoError(t, servers.Kill(ctx, node))
			q.proven(t)
			require.NotEqual(t, node, serverOf(t, servers, q.holding))
			back(t, node)
		}},
		{"the waiter's server is killed", func(t *testing.T, q *threeNodeQueue) {
			t.Helper()
			node := serverOf(t, servers, q.awaiting)
			require.NoError(t, servers.Kill(ctx, node))
			q.proven(t)
			back(t, node)
		}},
		{"the leader is killed", func(t *testing.T, q *threeNodeQueue) {
			t.Helper()
			node, err := servers.Leader(ctx)
			require.NoError(t, err)
			require.NoError(t, servers.Kill(ctx, node))
			q.proven(t)
			back(t, node)
		}},
		{"the holder's server hangs", func(t *testing.T, q *threeNodeQueue) {
			t.Helper()
			node := serverOf(t, servers, q.holding)
			require.NoError(t, servers.Pause(ctx, node))
			q.proven(t)
			require.NotEqual(t, node, serverOf(t, servers, q.holding))
			require.NoError(t, servers.Unpause(ctx, node))
			require.NoError(t, servers.WaitServing(ctx))
		}},
		{"rolling restart", func(t *testing.T, q *threeNodeQueue) {
			t.Helper()
			for node := range 3 {
				require.NoError(t, servers.Stop(ctx, node))
				q.proven(t)
				back(t, node)
				q.proven(t)
			}
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			q := newThreeNodeQueue(t, servers)
			tc.fault(t, q)
			q.finish(t)
			t.Log(time.Since(began))
		})
	}
}

// serverOf is the number of the node that a client is connected to.
func serverOf(t *testing.T, servers *ensemble.Ensemble, client *recipes.Client) int {
	t.Helper()
	reached(t, client, recipes.Connected)
	node := slices.Index(servers.Servers(), client.Conn().Server())
	require.GreaterOrEqual(t, node, 0)
	return node
}

// threeNodeQueue is a holder and a waiter in sessions of their own.
type threeNodeQueue struct {
	path, place       string
	holding, awaiting *recipes.Client
	lease             *recipes.Lease
	token             int64
	done              <-chan result
}

func newThreeNodeQueue(t *testing.T, servers *ensemble.Ensemble) *threeNodeQueue {
	t.Helper()
	client := func() *recipes.Client {
		client, err := recipes.Connect(testkit.Context(t), servers.Servers(), recipes.WithSessionTimeout(calm))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		return client
	}
	q := &threeNodeQueue{path: testkit.Path(t), holding: client(), awaiting: client()}
	q.lease = acquire(t, newMutex(t, q.holding, q.path))
	q.token = q.lease.FencingToken()
	done, waiter := make(chan result, 1), newMutex(t, q.awaiting, q.path)
	go func() {
		lease, err := waiter.Acquire(t.Context())
		done <- result{lease, err}
	}()
	q.done = done
	testkit.Eventually(t, func() bool { return len(q.children(t)) == 2 }, "the waiter")
	for _, child := range q.children(t) {
		if path := q.path + "/" + child; path != q.lease.Path() {
			q.place = path
		}
	}
	return q
}

// children lists the queue in the holder's session, which finds another server in
// time. A plain zk.Conn on the hung one would wait for it for a minute.
func (q *threeNodeQueue) children(t *testing.T) []string {
	t.Helper()
	var names []string
	testkit.Eventually(t, func() (ok bool) {
		var err error
		if _, err = q.holding.Conn().Sync(q.path); err != nil {
			return false
		}
		names, _, err = q.holding.Conn().Children(q.path)
		return err == nil
	}, "a server that answers")
	return names
}

// proven waits until a write after the call proves that the lease's session is alive, and checks that nothing
// changed.
func (q *threeNodeQueue) proven(t *testing.T) {
	t.Helper()
	from := time.Now().Add(calm * 2 / 3)
	testkit.Eventually(t, func() bool { return q.lease.Context().Err() != nil || q.lease.TrustedUntil().After(from) }, "proof")
	stands(t, q.lease)
	notGranted(t, q.done, "the waiter")
	names := q.children(t)
	require.Len(t, names, 2)
}

func (q *threeNodeQueue) finish(t *testing.T) {
	t.Helper()
	stands(t, q.lease)
	require.Equal(t, q.token, q.lease.FencingToken())
	require.NoError(t, q.lease.Release())
	next := granted(t, q.done)
	require.Equal(t, q.place, next.Path(), "the place is kept")
	require.Greater(t, next.FencingToken(), q.token)
	require.NoError(t, next.Release())
	require.Empty(t, q.children(t))
}
