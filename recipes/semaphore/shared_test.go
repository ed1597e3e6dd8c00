package semaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func sharedOf(b *bubble.Bubble, client *recipes.Client, seed int) *semaphore.InterProcessSemaphore {
	b.Helper()
	return locks.SemaphoreOf(b, client, seed, semaphore.WithSharedLimit(shared))
}

// The limit of New is written where the znode is missing, and counts for nothing where it exists.
func TestSharedLimitIsSeeded(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		first, second := sharedOf(b, b.Client(), 2), sharedOf(b, b.Client(), 7)
		none, err := first.Participants(b.Context())
		require.NoError(b, err)
		require.Empty(b, none)
		_, _, found := b.Srv.Get(shared)
		require.False(b, found, "nobody has asked for a permit yet")
		held := bubble.Acquire(b, locks.Many(first, 2))
		data, stat, _ := b.Srv.Get(shared)
		require.Equal(b, []byte{0, 0, 0, 2}, data)
		require.Zero(b, stat.EphemeralOwner)
		_, err = second.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		locks.ReleaseAll(b, held)
	})
}

// Curator's testThreadedLeaseIncrease: waiters wake when the limit grows. A lower limit revokes nothing, and counts for later
// acquisitions. A limit of 0 admits no request.
func TestSharedLimitChanges(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		set := func(n int) { require.NoError(b, semaphore.SetSharedLimit(b.Context(), client, shared, n)) }
		set(1)
		s := sharedOf(b, b.Client(), 9)
		one := bubble.Acquire(b, s.Acquire)
		three := bubble.Waiting(b, b.Context(), locks.Many(s, 3)) // more than the limit
		behind := bubble.Waiting(b, b.Context(), s.Acquire)
		set(3)
		first := bubble.Granted(b, behind) // it did not wait behind the request above the limit
		bubble.Pass(bubble.Moment)
		require.Empty(b, three, "two are held")
		set(4)
		bubble.Pass(bubble.Moment)
		require.Empty(b, three)
		behind = bubble.Waiting(b, b.Context(), s.Acquire)
		b.Release(first)
		held := bubble.Granted(b, three)
		require.Empty(b, behind)
		set(2)
		all, err := s.Participants(b.Context())
		require.NoError(b, err)
		require.Len(b, all, 2, "the first ones")
		require.Equal(b, one.Path(), all[0].Path)
		set(0)
		b.Stands(one, held[0])
		locks.ReleaseAll(b, append(held, one))
		bubble.Pass(time.Minute)
		require.Empty(b, behind, "paused")
		_, err = s.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		all, err = s.Participants(b.Context())
		require.NoError(b, err)
		require.Empty(b, all)
		set(1)
		b.Release(bubble.Granted(b, behind))
		_, err = s.TryAcquireN(b.Context(), 2)
		require.ErrorIs(b, err, recipes.ErrNotAcquired, "a try does not wait for the limit to grow")
		locks.RequireNoPermits(b)
	})
}

// A znode without a valid limit is an error with a name, and nothing is left.
func TestSharedLimitOfAnotherForm(t *testing.T) {
	for name, data := range map[string][]byte{
		"empty": {}, "three bytes": {0, 0, 1}, "five bytes": {0, 0, 0, 0, 1}, "negative": {0xff, 0, 0, 0}, "text": []byte("2"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				b.Srv.Put("/limits", nil)
				b.Srv.Put(shared, data)
				s := sharedOf(b, b.Client(), 2)
				for _, acquire := range []func(context.Context) (*recipes.Lease, error){s.Acquire, s.TryAcquire} {
					_, err := acquire(b.Context())
					require.ErrorIs(b, err, semaphore.ErrSharedLimit)
					require.ErrorContains(b, err, shared)
				}
				_, err := s.Participants(b.Context())
				require.ErrorIs(b, err, semaphore.ErrSharedLimit)
				bubble.Pass(bubble.Moment)
				locks.RequireNoPermits(b)
				require.NoError(b, semaphore.SetSharedLimit(b.Context(), b.Client(), shared, 1))
				b.Release(bubble.Acquire(b, s.Acquire))
			})
		})
	}
}

// The answer to a write of the limit is lost: it is written all the same, also where the znode is missing.
func TestSetSharedLimitUnderFaults(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpSetData, zktest.OpCreate, zktest.OpCreateContainer} {
		t.Run(op.String(), func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Client()
				b.Srv.DropReply(op, 1, client.Conn().SessionID())
				require.NoError(b, semaphore.SetSharedLimit(b.Context(), client, shared, 5))
				data, _, _ := b.Srv.Get(shared)
				require.Equal(b, []byte{0, 0, 0, 5}, data)
			})
		})
	}
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		require.ErrorIs(b, semaphore.SetSharedLimit(ctx, client, shared, 1), context.Canceled)
		require.NoError(b, client.Close())
		require.ErrorIs(b, semaphore.SetSharedLimit(b.Context(), client, shared, 1), recipes.ErrClosed)
	})
}

// A waiter learns of a limit that was raised while it had no connection.
func TestSharedLimitGrowsDuringAnOutage(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		require.NoError(b, semaphore.SetSharedLimit(b.Context(), client, shared, 0))
		waiting := bubble.Waiting(b, b.Context(), sharedOf(b, b.Troubled(recipes.WithSessionTimeout(time.Minute)), 1).Acquire)
		over := b.Outage()
		require.NoError(b, semaphore.SetSharedLimit(b.Context(), client, shared, 1))
		over()
		b.Release(bubble.Granted(b, waiting))
	})
}
