package snippets

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestFirst(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	lock := lockOn(t, client, "/locks/report")
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release())
	server.RequireIdle(t) // no ephemeral znode and no watch is left
}

func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		lock := lockOn(t, zkclient.Connect(t, server), "/locks/report")
		other := lockOn(t, zkclient.Connect(t, server), "/locks/report") // another process
		lease, err := other.Acquire(t.Context())
		require.NoError(t, err)

		err = lock.DoWithin(t.Context(), 50*time.Millisecond, func(context.Context, *recipes.Lease) error { return nil })
		var wait *recipes.WaitError
		require.ErrorAs(t, err, &wait)
		require.Equal(t, lease.Path(), wait.Holder.Path)
		require.NoError(t, lease.Release())
	})
}

func TestCrashedHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		lock := lockOn(t, zkclient.Connect(t, server), "/locks/report")
		session := server.OpenSession(30 * time.Second) // like that of a crashed process
		server.Seed(zktest.Znode{Path: "/locks/report/lock-0000000000", Session: session})

		start := time.Now()
		lease, err := lock.Acquire(t.Context())
		require.NoError(t, err)
		require.WithinDuration(t, start.Add(30*time.Second), time.Now(), time.Second)
		require.NoError(t, lease.Release())
	})
}

func TestLostAnswer(t *testing.T) {
	server := zktest.NewServer(t)
	lock := lockOn(t, zkclient.Connect(t, server), "/locks/report")
	server.DropReply(zktest.OpCreate2, 1) // the server creates the znode, and the answer is lost
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	require.Len(t, server.Children("/locks/report"), 1)
	require.NoError(t, lease.Release())
}

func TestRollingRestart(t *testing.T) {
	server := zktest.NewServer(t, zktest.WithServers(3))
	lock := lockOn(t, zkclient.Connect(t, server), "/locks/report")
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	for _, address := range server.Addrs() {
		server.Stop(address)
		require.NoError(t, server.Restart(address))
	}
	require.NoError(t, lease.Context().Err(), "the lease survives")
	require.NoError(t, lease.Release())
}

func TestSilentServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		client := zkclient.Connect(t, server, recipes.WithSessionTimeout(30*time.Second))
		lease, err := lockOn(t, client, "/locks/report").Acquire(t.Context())
		require.NoError(t, err)
		server.Partition() // silence, without a reset
		start := time.Now()
		<-lease.Context().Done()
		require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrSessionLost)
		require.Equal(t, 20*time.Second, time.Since(start)) // 2/3 of the session timeout
	})
}

func TestExactMoment(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	lock := lockOn(t, client, "/locks/report")
	var first sync.Once
	server.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpDelete {
			first.Do(func() { server.Expire(r.Session) }) // right before the release is executed
		}
		return zktest.Fault{}
	})
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release(), "the znode was deleted with its session")
	server.RequireIdle(t)
}

func TestRequests(t *testing.T) {
	server := zktest.NewServer(t)
	lock := lockOn(t, zkclient.Connect(t, server), "/locks/report")
	report := func(context.Context, *recipes.Lease) error { return nil }
	require.NoError(t, lock.Do(t.Context(), report)) // makes the lock's directory
	log := server.Observe()
	require.NoError(t, lock.Do(t.Context(), report))
	require.Len(t, log.Requests(), 3, "create, list, delete")
}

func TestOldServer(t *testing.T) {
	server := zktest.NewServer(t, zktest.WithDialect(zktest.ZooKeeper34))
	lock, err := mutex.New(zkclient.Connect(t, server), "/locks/report")
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release())
}
