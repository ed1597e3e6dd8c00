package mutex_test

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// The requests of an uncontended acquisition are part of what users pay for.
func TestAcquireAndRelease(t *testing.T) {
	path := testkit.Path(t)
	require.NoError(t, acquire(t, newMutex(t, direct(t), path)).Release(), "the first one makes the parent")

	var m *mutex.InterProcessMutex
	var proxy *faultproxy.Proxy
	isBrief := func() bool {
		client, p := proxied(t, recipes.WithSessionTimeout(longSession)) // without a heartbeat among the requests
		m, proxy = newMutex(t, client, path), p
		proxy.ResetCounts()
		require.NoError(t, acquire(t, m).Release())
		return requests(proxy)["getData"] == 0
	}
	testkit.Eventually(t, isBrief, "a release before the own znode is read")
	require.Equal(t, map[string]int{"create2": 1, "getChildren2": 1, "delete": 1}, requests(proxy))

	proxy.ResetCounts()
	lease := acquire(t, m)
	require.Len(t, children(t, path), 1)
	testkit.Eventually(t, func() bool { return requests(proxy)["getData"] == 1 }, "the own znode is watched")
	require.NoError(t, lease.Release())
	require.Empty(t, children(t, path))
	require.Equal(t, map[string]int{"create2": 1, "getChildren2": 1, "getData": 1, "delete": 1}, requests(proxy))

	require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrReleased)
	require.ErrorIs(t, lease.Release(), recipes.ErrNotHeld)
	require.Empty(t, children(t, path))
}

// One of each on a real server. The tests of recipes/mutex cover all cases in virtual time.
func TestSmoke(t *testing.T) {
	path, client := testkit.Path(t), direct(t)
	revocations := make(chan *recipes.Lease, 1)
	m := newMutex(t, client, path, mutex.WithID("holder"), mutex.WithRevocationListener(func(lease *recipes.Lease) { revocations <- lease }))
	other := newMutex(t, direct(t), path, mutex.WithID(""))
	var lease *recipes.Lease
	var next <-chan result
	require.NoError(t, m.Do(testkit.Context(t), func(ctx context.Context, outer *recipes.Lease) error {
		inner, err := m.Acquire(ctx)
		require.NoError(t, err)
		require.Equal(t, created(t, inner.Path()), inner.FencingToken())
		_, err = other.TryAcquire(testkit.Context(t))
		require.ErrorIs(t, err, recipes.ErrNotAcquired)
		next = waiting(t, testkit.Context(t), other, path, 2)
		participants, err := other.Participants(testkit.Context(t))
		require.NoError(t, err)
		require.Equal(t, []string{"holder", ""}, []string{participants[0].ID, participants[1].ID})
		data, _, err := observer(t).Get(participants[1].Path)
		require.NoError(t, err)
		require.NotNil(t, data, "an empty id is written as an empty value")

		require.NoError(t, revoke.New(direct(t)).AttemptRevoke(testkit.Context(t), outer.Path()))
		require.Same(t, outer, testkit.Receive(t, revocations, "the revocation"))
		revoked(t, inner)
		_, err = observer(t).Multi(inner.Check())
		require.NoError(t, err, "the guard is not the data")
		lease = inner
		return inner.Release()
	}))
	_, err := observer(t).Multi(lease.Check())
	require.ErrorIs(t, err, zk.ErrNoNode)
	successor := granted(t, next)
	require.Greater(t, successor.FencingToken(), lease.FencingToken())
	require.NoError(t, successor.Release())
	require.NoError(t, observer(t).Delete(path, -1))
	again := acquire(t, m)
	require.Greater(t, again.FencingToken(), successor.FencingToken(), "tokens grow, though the numbers begin anew")
	require.NoError(t, again.Release())
}
