package snippets

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestBuild(t *testing.T) {
	server := zktest.NewServer(t)
	server.Put("/team", nil)
	client, err := build(t.Context(), server.Addr()+"/team")
	require.NoError(t, err)
	lease, err := lockOn(t, client, "/locks/a").Acquire(t.Context())
	require.NoError(t, err)
	require.Contains(t, lease.Path(), "/team/shop/locks/a/")
	_, _, err = client.Conn().Get(lease.Path())
	require.NoError(t, err, "paths of Conn are those of the server")
	_, err = client.Conn().Create("/elsewhere", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err, "Conn bypasses namespace and ACL")
	require.NoError(t, lease.Release())
	require.NoError(t, client.Close())
}

func TestWatchStates(t *testing.T) {
	client := zkclient.Connect(t, zktest.NewServer(t))
	watchStates(client)()
}

func TestAcquireWithin(t *testing.T) {
	server := zktest.NewServer(t)
	lock := lockOn(t, zkclient.Connect(t, server), "/locks/a")
	require.NoError(t, acquireWithin(t.Context(), lock, func(ctx context.Context) error {
		inner, err := lock.Acquire(ctx)
		require.NoError(t, err)
		require.True(t, isAcquired(inner))
		require.NoError(t, inner.Release())
		require.False(t, isAcquired(inner))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, acquireWithin(ended, lock, nil), errBusy)
		return nil
	}))
	server.RequireIdle(t)
}

func TestRevocable(t *testing.T) {
	client := zkclient.Connect(t, zktest.NewServer(t))
	lock := lockOn(t, client, "/locks/a")
	require.NoError(t, revocable(t.Context(), lock, func(ctx context.Context) bool {
		holders, err := lock.Participants(ctx)
		require.NoError(t, err)
		require.NoError(t, revoke.New(client).AttemptRevoke(ctx, holders[0].Path))
		return true
	}))
}

func TestDowngrade(t *testing.T) {
	lock, err := rwlock.New(zkclient.Connect(t, zktest.NewServer(t)), "/locks/a")
	require.NoError(t, err)
	reading, err := downgrade(t.Context(), lock)
	require.NoError(t, err)
	_, err = lock.WriteLock().TryAcquire(t.Context())
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	require.NoError(t, reading.Release())
}

func TestPermitsAndBoth(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	require.NoError(t, permits(t.Context(), client, func() error {
		require.Len(t, server.Children("/limits/exports/leases"), 2)
		return nil
	}))
	require.NoError(t, both(t.Context(), client, func(_ context.Context, lease *multilock.Lease) error {
		require.Contains(t, lease.Leases()[0].Path(), "/locks/a/")
		return nil
	}))
	server.RequireIdle(t)
}

func TestStart(t *testing.T) {
	server := zktest.NewServer(t)
	began := make(chan struct{})
	l, err := start(zkclient.Connect(t, server), func(ctx context.Context) {
		close(began)
		<-ctx.Done()
	})
	require.NoError(t, err)
	<-began
	require.NoError(t, l.Close())
	server.RequireIdle(t)
}

func TestDeletedZnode(t *testing.T) {
	server := zktest.NewServer(t)
	lease, err := lockOn(t, zkclient.Connect(t, server), "/locks/a").Acquire(t.Context())
	require.NoError(t, err)
	server.Delete(lease.Path())
	<-lease.Context().Done()
	require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrNodeDeleted)
}
