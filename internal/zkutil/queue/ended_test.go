package queue_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The context of an ended hold never acquires again, also under a derived context and when another contender holds
// the lock. The error is the cause of the hold's end.
func TestEndedHoldNeverReenters(t *testing.T) {
	for cause, end := range map[error]func(f *locks.Fixture, client *recipes.Client, lease *recipes.Lease){
		recipes.ErrReleased:    func(f *locks.Fixture, _ *recipes.Client, lease *recipes.Lease) { require.NoError(f, lease.Release()) },
		recipes.ErrSessionLost: func(f *locks.Fixture, client *recipes.Client, _ *recipes.Lease) { f.ExpireUnheard(client) },
		recipes.ErrNodeDeleted: func(f *locks.Fixture, _ *recipes.Client, lease *recipes.Lease) { f.Srv.Delete(lease.Path()) },
		recipes.ErrClosed:      func(f *locks.Fixture, client *recipes.Client, _ *recipes.Lease) { require.NoError(f, client.Close()) },
	} {
		t.Run(cause.Error(), func(t *testing.T) {
			locks.Run(t, func(f *locks.Fixture) { endedHold(f, cause, end) })
		})
	}
}

func endedHold(f *locks.Fixture, cause error, end func(f *locks.Fixture, client *recipes.Client, lease *recipes.Lease)) {
	f.Helper()
	client := f.Troubled()
	m := f.Mutex(client)
	lease := bubble.Acquire(f.T, m.Acquire)
	inner, err := m.Acquire(context.WithoutCancel(lease.Context()))
	require.NoError(f, err)
	if cause == recipes.ErrReleased { //nolint:errorlint // a table's value
		require.NoError(f, inner.Release())
	}
	end(f, client, lease)
	require.ErrorIs(f, f.Cause(lease), cause)
	require.ErrorIs(f, f.Cause(inner), cause, "inner leases end with the hold")

	refused := func() {
		log := f.Srv.Observe()
		for _, ctx := range []context.Context{lease.Context(), inner.Context(), context.WithoutCancel(inner.Context())} {
			_, err := m.Acquire(ctx)
			require.ErrorIs(f, err, cause)
			_, err = m.TryAcquire(ctx)
			require.ErrorIs(f, err, cause)
			require.ErrorIs(f, m.Do(ctx, func(context.Context, *recipes.Lease) error {
				require.Fail(f, "fn runs without the lock")
				return nil
			}), cause)
		}
		require.Zero(f, log.Count(zktest.OpCreate2))
		log.Stop()
	}
	refused()
	if cause == recipes.ErrClosed { //nolint:errorlint // a table's value
		_, err = m.Acquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrClosed)
		return
	}
	next := bubble.Acquire(f.T, m.Acquire) // the same value works again, and is of no use to the old contexts
	require.Greater(f, next.FencingToken(), lease.FencingToken())
	refused()
	if cause != recipes.ErrReleased { //nolint:errorlint // a table's value
		for _, lost := range []*recipes.Lease{lease, inner} {
			require.ErrorIs(f, lost.Release(), cause, "the loss is told once")
			require.ErrorIs(f, lost.Release(), recipes.ErrNotHeld)
		}
	}
	f.Stands(next)
	require.NoError(f, next.Release())
	bubble.Pass(bubble.Moment)
	require.Empty(f, f.Contenders(), "no znode is left")
}
