package mutex_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// revocations is a listener that passes its leases on.
func revocations() (mutex.Option, <-chan *recipes.Lease) {
	calls := make(chan *recipes.Lease, 16)
	return mutex.WithRevocationListener(func(lease *recipes.Lease) { calls <- lease }), calls
}

// revoked waits for a lease's revocation.
func revoked(t *testing.T, lease *recipes.Lease) {
	t.Helper()
	select {
	case <-lease.Revoked():
	case <-testContext(t).Done():
		require.Fail(t, "the revocation is not seen")
	}
}

func notRevoked(t *testing.T, lease *recipes.Lease) {
	t.Helper()
	select {
	case <-lease.Revoked():
		require.Fail(t, "revoked")
	default:
	}
}

// called waits for the listener's call.
func called(t *testing.T, calls <-chan *recipes.Lease, lease *recipes.Lease) {
	t.Helper()
	select {
	case got := <-calls:
		require.Same(t, lease, got)
	case <-testContext(t).Done():
		require.Fail(t, "the listener has not been called")
	}
}

func TestRevoke(t *testing.T) {
	path := lockPath(t)
	listener, calls := revocations()
	m := newMutex(t, direct(t), path, listener)
	lease := acquire(t, m)
	inner, err := m.Acquire(lease.Context())
	require.NoError(t, err)
	revoker := revoke.New(direct(t))
	notRevoked(t, lease)

	require.NoError(t, revoker.AttemptRevoke(testContext(t), lease.Path()))
	data, _, err := observer(t).Get(lease.Path())
	require.NoError(t, err)
	require.Equal(t, []byte{'_', '_', 'R', 'E', 'V', 'O', 'K', 'E', '_', '_'}, data)
	revoked(t, lease)
	revoked(t, inner)
	called(t, calls, lease)
	late, err := m.Acquire(inner.Context())
	require.NoError(t, err)
	revoked(t, late)
	stands(t, lease)
	require.Equal(t, []string{lease.Path()}, queue(t, path), "still held")

	// Once more: the listener is called once a hold.
	require.NoError(t, revoker.AttemptRevoke(testContext(t), lease.Path()))
	for _, l := range []*recipes.Lease{late, inner, lease} {
		require.NoError(t, l.Release())
	}
	require.Empty(t, children(t, path))
	next := acquire(t, m)
	notRevoked(t, next)
	require.NoError(t, revoker.AttemptRevoke(testContext(t), next.Path()))
	called(t, calls, next) // one call too many of the former hold would come before it
	require.NoError(t, next.Release())
	require.Empty(t, calls)
}

// TestRevokeWhileWaiting: Curator misses the request that came before the grant.
func TestRevokeWhileWaiting(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy){
		"undisturbed": func(*testing.T, *recipes.Client, *faultproxy.Proxy) {},
		"then cut":    cutAndReconnect,
		"read, then cut": func(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy) {
			t.Helper()
			eventually(t, func() bool { return proxy.Counts().Requests["getData"] >= 3 }, "the revocation is read")
			cutAndReconnect(t, client, proxy)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := lockPath(t)
			listener, calls := revocations()
			client, proxy := proxiedFor(t, calm)
			m := newMutex(t, client, path, listener)
			holder := acquire(t, newMutex(t, direct(t), path))
			done := waiting(t, testContext(t), m, path, 2)
			place := queue(t, path)[1]
			// Own znode and predecessor are watched.
			eventually(t, func() bool { return proxy.Counts().Requests["getData"] == 2 }, "the wait")
			require.NoError(t, revoke.New(direct(t)).AttemptRevoke(testContext(t), place))
			fault(t, client, proxy)
			notRevoked(t, holder)
			notGranted(t, done, "the revoked waiter")
			require.NoError(t, holder.Release())
			lease := granted(t, done)
			require.Equal(t, place, lease.Path())
			revoked(t, lease)
			called(t, calls, lease)
			stands(t, lease)
			require.NoError(t, lease.Release())
			require.Empty(t, calls)
		})
	}
}

// TestRevokeDuringOutage: of a waiter, then of the holder.
func TestRevokeDuringOutage(t *testing.T) {
	client, proxy := proxiedFor(t, calm)
	revoker := revoke.New(direct(t))
	path := lockPath(t)
	listener, calls := revocations()
	m := newMutex(t, client, path, listener)
	t.Run("waiting", func(t *testing.T) {
		holder := acquire(t, newMutex(t, direct(t), path))
		done := waiting(t, testContext(t), m, path, 2)
		place := queue(t, path)[1]
		over := outage(t, client, proxy)
		require.NoError(t, revoker.AttemptRevoke(testContext(t), place))
		require.NoError(t, holder.Release())
		over()
		lease := granted(t, done)
		require.Equal(t, place, lease.Path())
		revoked(t, lease)
		called(t, calls, lease)
		require.NoError(t, lease.Release())
	})
	t.Run("holding", func(t *testing.T) {
		lease := acquire(t, m)
		over := outage(t, client, proxy)
		require.NoError(t, revoker.AttemptRevoke(testContext(t), lease.Path()))
		notRevoked(t, lease)
		over()
		revoked(t, lease)
		called(t, calls, lease)
		stands(t, lease)
		require.NoError(t, lease.Release())
	})
	require.Empty(t, calls)
}

func TestRevocationListenerPanics(t *testing.T) {
	var log lockedBuffer
	client := direct(t, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	path := lockPath(t)
	calls := make(chan *recipes.Lease, 2)
	m := newMutex(t, client, path, mutex.WithRevocationListener(func(lease *recipes.Lease) {
		calls <- lease
		panic("listener of " + lease.Path())
	}))
	revoker := revoke.New(client)
	for range 2 {
		lease := acquire(t, m)
		require.NoError(t, revoker.AttemptRevoke(testContext(t), lease.Path()))
		called(t, calls, lease)
		eventually(t, func() bool { return strings.Contains(log.String(), "listener of "+lease.Path()) }, "the panic is logged")
		stands(t, lease)
		require.NoError(t, lease.Release())
	}
}

// lockedBuffer is a buffer for a log.
type lockedBuffer struct {
	mu sync.Mutex // protects buffer
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestRevocationListenerReleases is what a listener is for.
func TestRevocationListenerReleases(t *testing.T) {
	path := lockPath(t)
	released := make(chan error, 1)
	m := newMutex(t, direct(t), path, mutex.WithRevocationListener(func(lease *recipes.Lease) { released <- lease.Release() }))
	lease := acquire(t, m)
	next := waiting(t, testContext(t), newMutex(t, direct(t), path), path, 2)
	require.NoError(t, revoke.New(direct(t)).AttemptRevoke(testContext(t), lease.Path()))
	require.NoError(t, granted(t, next).Release())
	require.NoError(t, <-released)
	require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrReleased)
	require.ErrorIs(t, lease.Release(), recipes.ErrNotHeld)
	require.Empty(t, children(t, path))
}

func TestRevokeOfGoneZnode(t *testing.T) {
	client := direct(t)
	lease := acquire(t, newMutex(t, client, lockPath(t)))
	require.NoError(t, lease.Release())
	revoker := revoke.New(client)
	require.NoError(t, revoker.AttemptRevoke(testContext(t), lease.Path()))
	require.NoError(t, revoker.AttemptRevoke(testContext(t), "/no/such/parent"+lockPath(t)+"/_c_x-lock-0000000001"))
}

// TestRevokeOfOtherZnodes: a typo must not overwrite somebody's data.
func TestRevokeOfOtherZnodes(t *testing.T) {
	root := lockPath(t)
	_, err := observer(t).Create(root, []byte("root"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	others := []string{"config", "lock-", "lock-12", "_c_x", "lock-00000000010", "lock-000000000a", "x-write-0000000001x"}
	for _, name := range others {
		_, err := observer(t).Create(root+"/"+name, []byte("data"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	bad := []string{"", "/", "relative", "relative/lock-0000000001", root + "/", root + "/lock-0000000001/", root + "//lock-0000000001", root + "/../lock-0000000001", "/zookeeper/lock-0000000001", root}
	for _, name := range others {
		bad = append(bad, root+"/"+name)
	}
	client, proxy := proxied(t)
	revoker := revoke.New(client)
	for _, path := range bad {
		err := revoker.AttemptRevoke(testContext(t), path)
		require.ErrorIs(t, err, recipes.ErrInvalidPath, "%q", path)
		var op *recipes.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, path, op.Path)
	}
	require.Zero(t, proxy.Counts().Total(), "nothing is sent")
	for _, name := range others {
		data, _, err := observer(t).Get(root + "/" + name)
		require.NoError(t, err)
		require.Equal(t, "data", string(data))
	}
	data, _, err := observer(t).Get(root)
	require.NoError(t, err)
	require.Equal(t, "root", string(data))
}

// TestOtherDataIsNoRevocation: and a revocation is still seen after it.
func TestOtherDataIsNoRevocation(t *testing.T) {
	client, proxy := proxiedFor(t, calm)
	answered := proxy.BeforeReply(faultproxy.Op("getData"), func(faultproxy.Request, faultproxy.Reply) {})
	listener, calls := revocations()
	lease := acquire(t, newMutex(t, client, lockPath(t), listener))
	for _, data := range []string{"other", "", "__REVOKE__ ", "__revoke__", "__REVOKE_", " __REVOKE__"} {
		reads := answered.Hits() // a read that is answered has set its watch
		_, err := observer(t).Set(lease.Path(), []byte(data), -1)
		require.NoError(t, err)
		eventually(t, func() bool { return answered.Hits() > reads }, "the change is noticed")
		notRevoked(t, lease)
	}
	stands(t, lease)
	require.NoError(t, revoke.New(client).AttemptRevoke(testContext(t), lease.Path()))
	revoked(t, lease)
	called(t, calls, lease)
	require.NoError(t, lease.Release())
	require.Empty(t, calls)
}

func TestRevokeByNilClient(t *testing.T) {
	require.NotPanics(t, func() {
		require.Error(t, revoke.New(nil).AttemptRevoke(testContext(t), "/a/lock-0000000001"))
	})
}
