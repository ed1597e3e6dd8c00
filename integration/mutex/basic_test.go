package mutex_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// The requests of an uncontended acquisition are part of what users pay for.
func TestAcquireAndRelease(t *testing.T) {
	client, proxy := proxied(t)
	path := lockPath(t)
	m := newMutex(t, client, path)
	require.NoError(t, acquire(t, m).Release(), "the first one makes the parent")

	proxy.ResetCounts()
	lease := acquire(t, m)
	require.Len(t, children(t, path), 1)
	require.NoError(t, lease.Release())
	require.Empty(t, children(t, path))
	require.Equal(t, map[string]int{"create": 1, "getChildren2": 1, "getData": 1, "delete": 1}, requests(proxy))

	require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrReleased)
	require.ErrorIs(t, lease.Release(), recipes.ErrNotHeld)
	require.Empty(t, children(t, path))
}
