package snippets

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

var acl = zk.WorldACL(zk.PermAll)

func TestZkLockHasTwoHolders(t *testing.T) {
	server := zktest.NewServer(t)
	one, two := zkclient.Connect(t, server).Conn(), zkclient.Connect(t, server).Conn()
	first, second := zk.NewLock(one, "/locks/import", acl), zk.NewLock(two, "/locks/import", acl)
	require.NoError(t, first.Lock())
	server.Expire(one.SessionID())    // after an outage, or a pause of the process
	require.NoError(t, second.Lock()) // the first holder gets no error, and continues to work
}

func TestZkLockIsStuckAfterAnExpiry(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	conn := client.Conn()
	lock := zk.NewLock(conn, "/locks/import", acl)
	require.NoError(t, lock.Lock())
	expired := conn.SessionID()
	server.Expire(expired)
	require.Eventually(t, func() bool { // the client has a new session
		id := conn.SessionID()
		return id != expired && id != 0 && conn.State() == zk.StateHasSession
	}, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, lock.Unlock(), zk.ErrNoNode)
	require.ErrorIs(t, lock.Lock(), zk.ErrDeadlock) // always, although no process holds the lock
}

func TestZkLockLeavesAZnode(t *testing.T) {
	server := zktest.NewServer(t)
	server.Put("/locks/import", nil)
	conn := zkclient.Connect(t, server).Conn()
	lock := zk.NewLock(conn, "/locks/import", acl)
	server.DropReply(zktest.OpGetChildren2, 1, conn.SessionID()) // the connection is lost after the create
	require.ErrorIs(t, lock.Lock(), zk.ErrConnectionClosed)
	require.Len(t, server.Children("/locks/import"), 1) // blocks all contenders until the session ends
	require.ErrorIs(t, lock.Unlock(), zk.ErrNotLocked)
}

// Each version waits for each other version on one path.
func TestChangeByRollingUpgrade(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	requireWaits := func(run func() error) {
		old := zk.NewLock(zkclient.Connect(t, server).Conn(), "/locks/import", acl)
		require.NoError(t, old.Lock())
		ended := make(chan error, 1)
		go func() { ended <- run() }() // received below
		require.Eventually(t, func() bool { return len(server.Children("/locks/import")) == 2 }, 10*time.Second, time.Millisecond)
		require.Empty(t, ended)
		require.NoError(t, old.Unlock())
		require.NoError(t, <-ended)
	}
	requireWaits(func() error {
		return importConfig(t.Context(), server.Addrs(), 30*time.Second, func(lost <-chan struct{}, conn *zk.Conn) error {
			require.Empty(t, lost)
			children, _, err := conn.Children("/locks/import")
			require.Len(t, children, 1)
			return err
		})
	})
	requireWaits(func() error {
		return importUnderMutex(t.Context(), client, func(_ context.Context, token int64) error {
			require.Positive(t, token)
			return nil
		})
	})
	server.RequireIdle(t)
}
