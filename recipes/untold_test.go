package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// untoldTimeout is the session timeout of the clients whose events get lost.
const untoldTimeout = 6 * time.Second

// untold runs change while the server sends no event to a client with an older session. It returns the value from the channel
// of change, and fails after 2T.
func untold[T any](b *bubble.Bubble, client *recipes.Client, change func() (found <-chan T)) T {
	bubble.Pass(2 * untoldTimeout)
	remove := b.Srv.DropEvent(100, client.Conn().SessionID())
	found := change()
	bubble.Pass(bubble.Moment)
	remove()
	select {
	case got := <-found:
		return got
	case <-time.After(2*untoldTimeout + 100*time.Millisecond):
		require.Fail(b, "not found within 2T")
		panic("unreachable")
	}
}

// A waiter for permits finds out by itself that one was released, and that a shared limit was raised.
func TestSemaphoreIsNotTold(t *testing.T) {
	for name, raise := range map[string]bool{"given back": false, "limit raised": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				other, client := b.Client(), b.Client(recipes.WithSessionTimeout(untoldTimeout))
				of := func(client *recipes.Client) *semaphore.InterProcessSemaphore {
					s, err := semaphore.New(client, "/s", 1, semaphore.WithSharedLimit("/limit"))
					require.NoError(b, err)
					return s
				}
				held := bubble.Acquire(b, of(other).Acquire)
				waiter := bubble.Start(b.Context(), of(client).Acquire)
				got := untold(b, client, func() <-chan bubble.Outcome[*recipes.Lease] {
					if raise {
						require.NoError(b, semaphore.SetSharedLimit(b.Context(), other, "/limit", 2))
					} else {
						b.Release(held)
					}
					return waiter
				})
				require.NoError(b, got.Err)
				b.Release(got.Lease)
				if raise {
					b.Release(held)
				}
			})
		})
	}
}

// An observer finds out by itself who leads.
func TestObserverIsNotTold(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		other, client := b.Client(), b.Client(recipes.WithSessionTimeout(untoldTimeout))
		of := func(client *recipes.Client) *latch.LeaderLatch {
			l, err := latch.New(client, "/l")
			require.NoError(b, err)
			return l
		}
		ctx, cancel := context.WithCancel(b.Context())
		leaders := of(client).Observe(ctx)
		require.Empty(b, (<-leaders).Path)
		first := of(other)
		leaderAfter := func(change func() error) recipes.Participant {
			return untold(b, client, func() <-chan recipes.Participant {
				require.NoError(b, change())
				return leaders
			})
		}
		require.NotEmpty(b, leaderAfter(first.Start).Path)
		require.Empty(b, leaderAfter(first.Close).Path)
		cancel()
	})
}

// A holder finds out by itself about a revocation, and a cohort about a waiter in another client.
func TestHolderIsNotTold(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		other, client := b.Client(), b.Client(recipes.WithSessionTimeout(untoldTimeout))
		held := bubble.Acquire(b, mutexOn(b, client, "/m").Acquire)
		untold(b, client, func() <-chan struct{} {
			require.NoError(b, revoke.New(other).AttemptRevoke(b.Context(), held.Path()))
			return held.Revoked()
		})
		b.Release(held)
	})
	bubble.Run(t, func(b *bubble.Bubble) {
		other, client := b.Client(), b.Client(recipes.WithSessionTimeout(untoldTimeout))
		cohort, err := mutex.New(client, "/m", mutex.WithCohort(mutex.Cohort{Linger: time.Hour}))
		require.NoError(b, err)
		b.Release(bubble.Acquire(b, cohort.Acquire))
		got := untold(b, client, func() <-chan bubble.Outcome[*recipes.Lease] {
			return bubble.Start(b.Context(), mutexOn(b, other, "/m").Acquire)
		})
		require.NoError(b, got.Err)
		b.Release(got.Lease)
	})
}
