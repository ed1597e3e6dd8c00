package semaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A wait times out, at the head of the queue or behind another waiter, on a line with any latency. The client's next try is not
// refused because of that wait.
func TestTryAfterATimedOutWait(t *testing.T) {
	for _, latency := range []time.Duration{0, 3 * time.Millisecond, 200 * time.Millisecond} {
		bubble.Run(t, func(b *bubble.Bubble) {
			client := b.Client()
			s := locks.SemaphoreOf(b, client, 3)
			held := bubble.Acquire(b, s.Acquire)
			b.Srv.Delay(zktest.OpAny, latency, client.Conn().SessionID())
			for range 10 {
				ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
				_, err := s.AcquireN(ctx, 3)
				cancel()
				require.ErrorIs(b, err, context.DeadlineExceeded)
				permit, err := s.TryAcquire(b.Context())
				require.NoError(b, err, "latency %v", latency)
				b.Release(permit)
			}
			b.Release(held)
			locks.RequireNoPermits(b)
		})
	}
}

// Even if the timed-out wait lost its turn before, the try is not refused.
func TestTryAfterAWaitWhoseTurnWasDeleted(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		s := locks.SemaphoreOf(b, b.Client(), 2)
		held := bubble.Acquire(b, s.Acquire)
		ctx, cancel := context.WithCancel(b.Context())
		waiting := bubble.Waiting(b, ctx, locks.Many(s, 2))
		b.Srv.Delete(b.Queue(locks.Turns)[0])
		cancel()
		require.ErrorIs(b, bubble.Receive(b, waiting).Err, context.Canceled)
		permit, err := s.TryAcquire(b.Context())
		require.NoError(b, err)
		b.Release(permit, held)
	})
}

// The context of a request ends at any step, also while it takes its permits. The client's next try for all permits is not
// refused because of permits without a holder.
func TestTryAfterARequestThatEndsWhileItTakesPermits(t *testing.T) {
	const latency, limit = 10 * time.Millisecond, 3
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		s := locks.SemaphoreOf(b, client, limit)
		b.Release(bubble.Acquire(b, s.Acquire)) // makes the directories
		b.Srv.Delay(zktest.OpAny, latency, client.Conn().SessionID())
		interrupted := 0
		for patience := latency / 4; patience < 8*latency; patience += latency / 4 {
			ctx, cancel := context.WithTimeout(b.Context(), patience)
			held, err := s.AcquireN(ctx, 2)
			cancel()
			if err == nil {
				locks.ReleaseAll(b, held)
				continue
			}
			require.ErrorIs(b, err, context.DeadlineExceeded)
			interrupted++
			all, err := s.TryAcquireN(b.Context(), limit)
			require.NoError(b, err, "after %v", patience)
			locks.ReleaseAll(b, all)
		}
		require.Greater(b, interrupted, 8)
		locks.RequireNoPermits(b)
	})
}
