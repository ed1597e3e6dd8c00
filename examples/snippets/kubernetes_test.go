package snippets

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestRunLeader(t *testing.T) {
	server := zktest.NewServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, runLeader(ctx, zkclient.Connect(t, server), func(ctx context.Context, _ *recipes.Lease) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}))
	server.RequireIdle(t)
}

func TestHourly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight
		client := zkclient.Connect(t, zktest.NewServer(t))
		runs := 0
		for range 2 {
			require.NoError(t, hourly(t.Context(), client, func(context.Context, *recipes.Lease) error { runs++; return nil }))
		}
		require.Equal(t, 1, runs)
	})
}
