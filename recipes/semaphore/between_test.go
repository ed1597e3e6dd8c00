package semaphore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// In a long queue for the turn a client that has had the turn a few contenders before does not list the queue: it asks for the
// contenders between, as that of a mutex does.
func TestTurnInALongQueueWithoutAList(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const waiters = 160
		clients := []*semaphore.InterProcessSemaphore{semaphoreOf(b, b.Client(), 1), semaphoreOf(b, b.Client(), 1)}
		held := bubble.Acquire(b, clients[0].Acquire)
		var waiting []<-chan bubble.Outcome[*recipes.Lease]
		for i := range waiters {
			waiting = append(waiting, bubble.Waiting(b, b.Context(), clients[i%2].Acquire))
		}
		requests := b.Srv.Observe()
		for _, next := range waiting {
			b.Release(held)
			held = bubble.Granted(b, next)
		}
		b.Release(held)
		lists := 0
		for _, r := range requests.Requests(zktest.OpGetChildren2) {
			if r.Path == locks {
				lists++
			}
		}
		const short = 64 // a list of a queue that is no longer costs no more
		require.LessOrEqual(b, lists, short)
		require.InDelta(b, waiters-short, requests.Count(zktest.OpMultiRead), 2)
		requireEmpty(b)
	})
}
