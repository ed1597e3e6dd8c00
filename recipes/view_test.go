package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// A view puts its namespace below that of the client, on the same session.
func TestView(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client(recipes.WithNamespace("team"))
		stock := made(client.In("stock"))
		deeper := made(stock.In("/a/b"))
		for view, dir := range map[*recipes.Client]string{client: "/team/m", stock: "/team/stock/m", deeper: "/team/stock/a/b/m", made(client.In("")): "/team/m"} {
			lease := bubble.Acquire(b, made(mutex.New(view, "/m")).Acquire)
			require.Equal(b, []string{lease.Path()}, b.Queue(dir))
			queue, err := inspect.Read(b.Context(), view, "/m")
			require.NoError(b, err)
			require.Equal(b, "/m", queue.Path)
			require.Len(b, queue.Contenders, 1)
			require.NoError(b, revoke.New(view).AttemptRevoke(b.Context(), lease.Path()))
			<-lease.Revoked()
			b.Release(lease)
		}
		require.Same(b, client.Conn(), deeper.Conn())
		require.Equal(b, recipes.Connected, stock.State())
	})
}

// A client and a view whose paths meet share their holds, as they share the session.
func TestViewSharesHolds(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		lease := bubble.Acquire(b, made(mutex.New(client, "/stock/m")).Acquire)
		again, err := made(mutex.New(made(client.In("stock")), "/m")).Acquire(lease.Context())
		require.NoError(b, err)
		require.Equal(b, lease.Path(), again.Path())
		b.Release(again, lease)
	})
}

// A view has no end of its own, and ends with the client.
func TestViewEndsWithItsClient(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		view := made(client.In("stock"))
		lease := bubble.Acquire(b, made(mutex.New(view, "/m")).Acquire)
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		for _, err := range []error{view.Close(), view.Shutdown(ctx)} {
			require.ErrorIs(b, err, recipes.ErrInvalidArgument)
		}
		b.Stands(lease)
		require.NoError(b, client.Close())
		require.ErrorIs(b, context.Cause(lease.Context()), recipes.ErrClosed)
		require.Equal(b, recipes.Closed, view.State())
		_, err := made(mutex.New(view, "/m")).Acquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrClosed)
	})
}

func TestViewRefusesBadNamespaces(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		for _, namespace := range []string{"a/", "a//b", "..", "zookeeper", "a\x00"} {
			_, err := client.In(namespace)
			require.ErrorIs(b, err, recipes.ErrInvalidPath, namespace)
			require.ErrorIs(b, err, recipes.ErrInvalidArgument, namespace)
		}
		_, err := (*recipes.Client)(nil).In("a")
		require.ErrorIs(b, err, recipes.ErrInvalidArgument)
	})
}
