package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// A request for many permits in a full session would have to wait for contenders of other paths, so the request fails at
// once. The request succeeds after these contenders leave.
func TestManyPermitsFailAtOnceInAFullSession(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const permits = 15
		limit := 40 * costOf("/x", "lock-")
		requireBudget(b, limit)
		client := b.Client(recipes.WithMaxSessionBytes(limit))
		s, err := semaphore.New(client, "/s", permits+1)
		require.NoError(b, err)
		held := bubble.Acquire(b, s.Acquire) // stays, so that the path has contenders

		m := mutexOn(b, client, "/x")
		var waits []context.CancelFunc
		for range 80 {
			ctx, cancel := context.WithCancel(b.Context())
			waits = append(waits, cancel)
			go func() { // ends with ctx
				if lease, err := m.Acquire(ctx); err == nil {
					<-ctx.Done()
					_ = lease.Release()
				}
			}()
		}
		bubble.Pass(time.Second)
		many := func(ctx context.Context) ([]*recipes.Lease, error) { return s.AcquireN(ctx, permits) }
		requireFull(b, many)
		requireFull(b, func(ctx context.Context) ([]*recipes.Lease, error) { return s.TryAcquireN(ctx, permits) })

		for _, cancel := range waits {
			cancel()
		}
		bubble.Pass(time.Minute)
		leases, err := many(b.Context())
		require.NoError(b, err)
		for _, lease := range leases {
			b.Release(lease)
		}
		b.Release(held)
		bubble.Pass(time.Minute)
		require.Empty(b, ephemerals(b.Srv, "/", map[int64]int{}))
	})
}
