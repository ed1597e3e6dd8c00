package recipe_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestNewChecksClientAndPath(t *testing.T) {
	client := zkclient.Connect(t, zktest.NewServer(t))
	for _, test := range []struct {
		client *recipes.Client
		path   string
	}{{nil, "/a"}, {client, "a"}, {client, ""}, {client, "/lock-0000000000"}, {client, "/a/x__READ__0000000001/b"}} {
		_, err := recipe.New(test.client, test.path, queue.Queue{Recipe: "barrier"})
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		op, isOp := zkutil.AsType[*recipes.OpError](err)
		require.True(t, isOp)
		require.Equal(t, "barrier: new", op.Op)
		require.Equal(t, test.path, op.Path)
	}
	base, err := recipe.New(client, "/a", queue.Queue{Recipe: "barrier"})
	require.NoError(t, err)
	require.Equal(t, "/a", base.Path)
	require.Equal(t, "/a", base.Queue.Dir)
	require.Equal(t, queue.Markers, base.Queue.Markers)
}

func TestLogAttributesOfAPanic(t *testing.T) {
	plain, panicked := errors.New("broken"), &recipes.PanicError{Value: "broken", Stack: []byte("frames")}
	require.Equal(t, []any{"path", "/a", "err", plain}, recipe.LogAttributes("/a", plain))
	require.Equal(t, []any{"path", "/a", "err", panicked, "stack", "frames"}, recipe.LogAttributes("/a", panicked))
}

func TestPublicError(t *testing.T) {
	cause := errors.New("cause")
	require.Same(t, cause, recipe.PublicError(cause))
	var want *recipes.WaitError
	require.ErrorAs(t, recipe.PublicError(&queue.InterruptedError{Waited: 1, Err: cause}), &want)
	require.Equal(t, &recipes.WaitError{Waited: 1, Err: cause}, want)
}
