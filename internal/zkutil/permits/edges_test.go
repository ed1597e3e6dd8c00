package permits_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// More permits than are taken at a time, and more than twice as many, in one request.
func TestManyPermits(t *testing.T) {
	for _, n := range []int{15, 16, 17, 33} {
		bubble.Run(t, func(b *bubble.Bubble) {
			s := locks.SemaphoreOf(b, b.Client(), n)
			start, held := time.Now(), bubble.Acquire(b, locks.Many(s, n))
			require.Len(b, b.Queue(locks.Permits), n)
			shown, err := s.Participants(b.Context())
			require.NoError(b, err)
			require.Len(b, shown, n)
			locks.ReleaseAll(b, held)
			require.Equal(b, start, time.Now())
			locks.RequireNoPermits(b)
		})
	}
}

// The first permit changes hands while a waiter waits for a permit in the second. The error names the current holder.
func TestHolderOfTheLatestFirstPermit(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		first := bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(), 2, semaphore.WithID("one")).Acquire)
		second := bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(), 2, semaphore.WithID("two")).Acquire)
		waiter := locks.SemaphoreOf(b, b.Client(), 2)
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		waiting := bubble.Waiting(b, ctx, locks.Many(waiter, 2))
		bubble.Pass(10 * time.Second)
		b.Release(first)
		bubble.Pass(10 * time.Second)
		got := bubble.Receive(b, waiting)
		wait, ok := zkutil.AsType[*recipes.WaitError](got.Err)
		require.True(b, ok)
		require.Equal(b, second.Path(), wait.Holder.Path)
		require.Equal(b, time.Minute, wait.Waited)
		b.Release(second)
		bubble.Pass(bubble.Moment)
		locks.RequireNoPermits(b)
	})
}

// A request waits for its turn, and then for a permit. The error is about the permit, not about the earlier holder of
// the turn.
func TestWaitErrorNamesTheHolderOfThePermit(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		held := bubble.Acquire(b, locks.SemaphoreOf(b, b.Client(), 1).Acquire)
		ahead, leave := context.WithCancel(b.Context())
		before := bubble.Waiting(b, ahead, locks.SemaphoreOf(b, b.Client(), 1).Acquire)
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
		defer cancel()
		waiting := bubble.Waiting(b, ctx, locks.SemaphoreOf(b, b.Client(), 1).Acquire)
		turn := b.Queue(locks.Turns)[0]
		bubble.Pass(5 * time.Second)
		leave()
		require.ErrorIs(b, bubble.Receive(b, before).Err, context.Canceled)
		wait, ok := zkutil.AsType[*recipes.WaitError](bubble.Receive(b, waiting).Err)
		require.True(b, ok)
		require.NotEqual(b, turn, wait.Holder.Path)
		require.Equal(b, held.Path(), wait.Holder.Path)
		require.Equal(b, 1, wait.Position)
		b.Release(held)
		bubble.Pass(bubble.Moment)
		locks.RequireNoPermits(b)
	})
}

// Paths that begin alike are different paths.
func TestSharedLimitBesideTheSemaphore(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		for limit, isRefused := range map[string]bool{
			locks.Semaphore + "-limit": false, locks.Semaphore + "limit": false, locks.Semaphore + "/locks": true, locks.Semaphore + "/limit": true, locks.Semaphore: true,
		} {
			s, err := semaphore.New(client, locks.Semaphore, 1, semaphore.WithSharedLimit(limit))
			if isRefused {
				require.ErrorIs(b, err, recipes.ErrInvalidArgument, limit)
				continue
			}
			require.NoError(b, err, limit)
			b.Release(bubble.Acquire(b, s.Acquire))
		}
	})
}

// Other znodes below the directory of the permits, among them contenders of other locks, are no permits.
func TestOtherZnodesBesidePermits(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		for _, name := range []string{"x-lock-0000000000", "lease", "lease-000000000", "release-", "lease-0000000000x", "latch-0000000000"} {
			b.Srv.Put(locks.Permits+"/"+name, nil)
		}
		s := locks.SemaphoreOf(b, b.Client(), 1)
		lease := bubble.Acquire(b, s.TryAcquire)
		shown, err := s.Participants(b.Context())
		require.NoError(b, err)
		require.Len(b, shown, 1)
		b.Release(lease)
	})
}
