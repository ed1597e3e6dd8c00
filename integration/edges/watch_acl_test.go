package edges_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// A server with the mend of CVE-2024-23944 tells of a znode only whoever may read it: a
// watch that was set by exists, which needs no right, is used up in silence.
func TestWatchEventNeedsRead(t *testing.T) {
	t.Parallel()
	server := shared(t)
	conn, blind := ownersConn(t, server), stranger(t, server)
	path := pathOf(t)
	_, err := conn.Create(path, nil, 0, ownersOnly())
	require.NoError(t, err)
	found, _, silent, err := blind.ExistsW(path)
	require.NoError(t, err)
	require.True(t, found)
	_, _, after, err := blind.ExistsW(path + "-after")
	require.NoError(t, err)
	require.NoError(t, conn.Delete(path, -1))
	_, err = conn.Create(path+"-after", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.Equal(t, zk.EventNodeCreated, (<-after).Type) // events come in order
	require.Empty(t, silent)
}

// A waiter watches by reading. Who may not read the znode ahead is told so at once, and
// does not wait for a word that never comes.
func TestWaiterThatMayNotReadTheZnodeAhead(t *testing.T) {
	t.Parallel()
	server := shared(t)
	path := pathOf(t)
	conn := stranger(t, server)
	_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	lease := acquire(t, newMutex(t, protected(t, server), path))
	other := connect(t, server)
	for op, call := range acquisitions() {
		if op == "mutex: try acquire" { // which need not wait, and so not watch
			require.ErrorIs(t, call(situation{t, testContext(t), other, path, ""}), recipes.ErrNotAcquired)
			continue
		}
		began := time.Now()
		require.ErrorIs(t, call(situation{t, testContext(t), other, path, ""}), zk.ErrNoAuth, op)
		require.Less(t, time.Since(began), atOnce, op)
	}
	eventually(t, func() bool { children, _, _ := conn.Children(path); return len(children) == 1 }, "the holder's alone")
	require.NoError(t, lease.Release())
}

// Whoever administers a znode can take the right to read it away from those who wait for
// it already. They hear nothing when it goes, and find out within the session timeout.
func TestRightToReadIsTakenFromAWaiter(t *testing.T) {
	t.Parallel()
	server := shared(t)
	holder, waiter := connect(t, server), connect(t, server, recipes.WithSessionTimeout(4*time.Second))
	path := pathOf(t)
	lease := acquire(t, newMutex(t, holder, path))
	next := acquiring(testContext(t), newMutex(t, waiter, path))
	eventually(t, func() bool { return watches(t, server, lease.Path()) == 2 }, "the holder and the waiter watch its znode")
	_, err := ownersConn(t, server).SetACL(lease.Path(), ownersOnly(), -1)
	require.NoError(t, err)
	require.NoError(t, lease.Release())
	r := <-next
	require.NoError(t, r.err)
	require.NoError(t, r.lease.Release())
}
