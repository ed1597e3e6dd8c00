package recipes_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Await returns with the first connection, and at once while the client is connected.
func TestAwait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		server.Stop()
		client := open(t, server)
		awaited := make(chan error, 1)
		go func() { awaited <- client.Await(t.Context()) }() // ends with the connection
		bubble.Pass(time.Minute)
		require.Empty(t, awaited)
		require.NoError(t, server.Restart())
		require.NoError(t, <-awaited)
		require.Equal(t, recipes.Connected, client.State())
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, client.Await(ended), "connected already")
		server.Stop()
		bubble.Pass(time.Second)
		require.ErrorIs(t, client.Await(ended), context.Canceled)
		require.NoError(t, server.Restart())
		require.NoError(t, client.Await(t.Context()))
	})
}

// The error of Await matches the end of the context, and has the failure that Health has.
func TestAwaitWithoutAServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		server.Stop()
		client := open(t, server)
		errStartup := errors.New("not started in time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errStartup)
		defer cancel()
		start := time.Now()
		err := client.Await(ctx)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errStartup)
		require.ErrorContains(t, err, client.Health().Err.Error())
		var op *recipes.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, "recipes: await", op.Op)
	})
}

// A client whose credentials are refused is not ready.
func TestAwaitWithRefusedCredentials(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		client := open(t, server, recipes.WithAuth("unknown", []byte("ann")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := client.Await(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, zk.ErrAuthFailed)
	})
}

// The end of the client ends Await.
func TestAwaitEndsWithTheClient(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		server.Stop()
		client := open(t, server)
		awaited := make(chan error, 1)
		go func() { awaited <- client.Await(t.Context()) }() // ends with the client
		bubble.Pass(time.Second)
		require.NoError(t, client.Close())
		require.ErrorIs(t, <-awaited, recipes.ErrClosed)
		require.ErrorIs(t, client.Await(t.Context()), recipes.ErrClosed)
	})
}
