package recipes_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// A request for many permits in a full session gets them, although there are always others that wait for the bytes of the next
// contender that leaves. They go on meanwhile.
func TestManyPermitsInAFullSession(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const places, permits = 40, 15
		limit := places * costOf("/x", "lock-")
		requireBudget(b, limit)
		client := b.Client(recipes.WithMaxSessionBytes(limit))
		s, err := semaphore.New(client, "/s", permits+1)
		require.NoError(b, err)
		held := bubble.Acquire(b, s.Acquire) // stays

		m, served := mutexOn(b, client, "/x"), new(atomic.Int32)
		ctx, cancel := context.WithCancel(b.Context())
		for range 2 * places {
			go func() {
				for ctx.Err() == nil {
					if lease, err := m.Acquire(ctx); err == nil {
						<-time.After(50 * time.Millisecond)
						served.Add(1)
						_ = lease.Release()
					}
				}
			}()
		}
		bubble.Pass(time.Second)
		for range 3 {
			before := served.Load()
			inTime, stop := context.WithTimeout(ctx, 10*time.Second)
			leases, err := s.AcquireN(inTime, permits)
			stop()
			if err != nil {
				cancel() // so that the others end
			}
			require.NoError(b, err)
			require.NotEqual(b, before, served.Load(), "others go on")
			for _, lease := range leases {
				b.Release(lease)
			}
			bubble.Pass(10 * time.Second)
		}
		cancel()
		b.Release(held)
		bubble.Pass(time.Minute)
		require.Empty(b, ephemerals(b.Srv, "/", map[int64]int{}))
	})
}
