package edges_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// A server with the fix of CVE-2024-23944 sends events of a znode only to clients that may read it. A watch set by
// exists, which needs no permission, is silently used up. Since 3.9, exists needs the permission to read.
func TestWatchEventNeedsRead(t *testing.T) {
	t.Parallel()
	server := shared(t)
	conn, blind := ownersConn(t, server), stranger(t, server)
	path := testkit.Path(t)
	_, err := conn.Create(path, nil, 0, ownersOnly())
	require.NoError(t, err)
	found, _, silent, err := blind.ExistsW(path)
	if errors.Is(err, zk.ErrNoAuth) {
		return
	}
	require.NoError(t, err)
	require.True(t, found)
	_, _, after, err := blind.ExistsW(path + "-after")
	require.NoError(t, err)
	require.NoError(t, conn.Delete(path, -1))
	_, err = conn.Create(path+"-after", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.Equal(t, zk.EventNodeCreated, (<-after).Type) // events arrive in order
	require.Empty(t, silent)
}

// A waiter watches by reading. A waiter that may not read the znode ahead fails at once, because the server would not
// report the znode's end.
func TestWaiterThatMayNotReadTheZnodeAhead(t *testing.T) {
	t.Parallel()
	server := shared(t)
	path := testkit.Path(t)
	conn := stranger(t, server)
	_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	lease := acquire(t, newMutex(t, protected(t, server), path))
	other := connect(t, server)
	for op, call := range acquisitions() {
		switch op {
		case "mutex: try acquire": // which need not wait, and so not watch
			require.ErrorIs(t, call(situation{t, testkit.Context(t), other, path, ""}), recipes.ErrNotAcquired)
			continue
		case "latch: join", "selector: join": // see TestElectionBehindAZnodeThatMayNotBeRead
			continue
		}
		began := time.Now()
		require.ErrorIs(t, call(situation{t, testkit.Context(t), other, path, ""}), zk.ErrNoAuth, op)
		require.Less(t, time.Since(began), atOnce, op)
	}
	testkit.Eventually(t, func() bool { children, _, _ := conn.Children(path); return len(children) == 1 }, "the holder's alone")
	require.NoError(t, lease.Release())
}

// A latch and a selector that may not read the znode ahead have no caller to report to. They list the queue
// periodically, keep their position, and lead once the one ahead is deleted.
func TestElectionBehindAZnodeThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	server := shared(t)
	path := testkit.Path(t)
	_, err := stranger(t, server).Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	other := connect(t, server)

	leader, err := latch.New(protected(t, server), path)
	require.NoError(t, err)
	require.NoError(t, leader.Start())
	_, err = leader.Await(testkit.Context(t))
	require.NoError(t, err)
	l, err := latch.New(other, path, latch.WithErrorHandler(func(err error) { t.Error(err) }))
	require.NoError(t, err)
	require.NoError(t, l.Start())
	testkit.Eventually(t, func() bool { return isClosed(l.Decided()) }, "the latch waits")
	place := l.Path()
	require.NotEmpty(t, place)
	require.False(t, l.HasLeadership())
	require.NoError(t, l.Err())
	require.NoError(t, leader.Close())
	term, err := l.Await(testkit.Context(t))
	require.NoError(t, err)
	require.Equal(t, place, term.Path(), "it has kept its place")
	require.NoError(t, l.Close())

	lease := acquire(t, newMutex(t, protected(t, server), path))
	led := make(chan struct{})
	s, err := selector.New(other, path, func(context.Context, *recipes.Lease) error { close(led); return nil },
		selector.WithErrorHandler(func(err error) { t.Error(err) }))
	require.NoError(t, err)
	require.NoError(t, s.Start())
	testkit.Eventually(t, func() bool { return s.Path() != "" }, "the selector waits")
	require.NoError(t, lease.Release())
	testkit.Eventually(t, func() bool { return isClosed(led) }, "the selector leads")
	require.NoError(t, s.Close())
}

// isClosed reports whether a channel is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// The administrator of a znode can revoke the read permission of existing waiters. They get no event of its deletion,
// and find out within the session timeout.
func TestRightToReadIsTakenFromAWaiter(t *testing.T) {
	t.Parallel()
	server := shared(t)
	holder, waiter := connect(t, server), connect(t, server, recipes.WithSessionTimeout(4*time.Second))
	path := testkit.Path(t)
	lease := acquire(t, newMutex(t, holder, path))
	next := acquiring(testkit.Context(t), newMutex(t, waiter, path))
	testkit.Eventually(t, func() bool { return watches(t, server, lease.Path()) == 2 }, "the holder and the waiter watch its znode")
	_, err := ownersConn(t, server).SetACL(lease.Path(), ownersOnly(), -1)
	require.NoError(t, err)
	require.NoError(t, lease.Release())
	r := <-next
	require.NoError(t, r.err)
	require.NoError(t, r.lease.Release())
}
