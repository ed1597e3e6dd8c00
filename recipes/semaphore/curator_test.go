package semaphore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// The remaining cases of Curator's tests. docs/evidence/curator-cases.md lists them all.

// testReleaseInChunks: permits that were taken together are given back in any portions.
func TestReleaseInChunks(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 10)
		held := bubble.Acquire(b, locks.Many(s, 10))
		waiting := bubble.Waiting(b, b.Context(), locks.Many(locks.SemaphoreOf(b, b.Client(), 10), 5))
		locks.ReleaseAll(b, held[:4])
		bubble.Pass(bubble.Moment)
		require.Empty(b, waiting)
		locks.ReleaseAll(b, held[4:6])
		locks.ReleaseAll(b, bubble.Granted(b, waiting))
		locks.ReleaseAll(b, held[6:])
		locks.RequireNoPermits(b)
	})
}

// testContainerCleanup and testWithNamespace.
func TestNamespaceAndReapedParents(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client(recipes.WithNamespace("team"))
		s := locks.SemaphoreOf(b, client, 2, semaphore.WithSharedLimit(shared))
		for range 2 {
			held := bubble.Acquire(b, locks.Many(s, 2))
			require.Len(b, b.Queue("/team"+locks.Permits), 2)
			_, _, found := b.Srv.Get("/team" + shared)
			require.True(b, found)
			locks.ReleaseAll(b, held)
			for range 4 {
				b.Srv.Reap()
			}
			require.Equal(b, []string{"limits"}, b.Srv.Children("/team"), "the limit stays")
		}
	})
}

// testCluster and testWaitingProcessKilledServer: no request is served without a server, and all waiters continue
// afterwards.
func TestOutage(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled(recipes.WithSessionTimeout(time.Minute))
		m, err := semaphore.NewMutex(client, locks.Semaphore)
		require.NoError(b, err)
		held := bubble.Acquire(b, m.Acquire)
		first, second := bubble.Waiting(b, b.Context(), m.Acquire), bubble.Waiting(b, b.Context(), m.Acquire)
		over := b.Outage()
		during := bubble.Start(b.Context(), m.Acquire)
		bubble.Pass(5 * time.Second)
		require.Empty(b, during)
		b.Stands(held)
		over()
		bubble.Pass(time.Second)
		b.Release(held)
		b.Release(bubble.Granted(b, first))
		b.Release(bubble.Granted(b, second))
		b.Release(bubble.Granted(b, during))
		locks.RequireNoPermits(b)
	})
}

// testKilledSession: the permit of an expired session is free.
func TestExpiryHandsThePermitOver(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		held := bubble.Acquire(b, locks.SemaphoreOf(b, client, 1).Acquire)
		waiting := bubble.Waiting(b, b.Context(), locks.SemaphoreOf(b, b.Client(), 1).Acquire)
		b.ExpireUnheard(client)
		lease := bubble.Granted(b, waiting)
		require.ErrorIs(b, b.Cause(held), recipes.ErrSessionLost)
		require.ErrorIs(b, held.Release(), recipes.ErrSessionLost)
		b.Release(lease)
		locks.RequireNoPermits(b)
	})
}
