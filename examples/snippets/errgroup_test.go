package snippets

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestServeAndElect(t *testing.T) {
	server := zktest.NewServer(t)
	leads, ended := make(chan struct{}), false
	election, err := selector.New(zkclient.Connect(t, server), "/services/report", func(ctx context.Context, _ *recipes.Lease) error {
		close(leads)
		<-ctx.Done()
		ended = true
		return nil
	}, selector.WithAutoRequeue())
	require.NoError(t, err)
	failed := errors.New("the port is taken")
	err = serveAndElect(t.Context(), election, func(context.Context) error {
		<-leads
		return failed
	})
	require.ErrorIs(t, err, failed)
	require.True(t, ended, "the leader's work")
	server.RequireIdle(t)
}
