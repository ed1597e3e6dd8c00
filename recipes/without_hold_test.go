package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

type valueKey struct{}

// Work with a context from WithoutHold queues, and gets the lock when Do has returned.
func TestWithoutHoldQueues(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		m := made(mutex.New(b.Client(), "/a"))
		var outer *recipes.Lease
		var background <-chan bubble.Outcome[*recipes.Lease]
		require.NoError(b, m.Do(context.WithValue(b.Context(), valueKey{}, "kept"), func(ctx context.Context, lease *recipes.Lease) error {
			outer = lease
			own := recipes.WithoutHold(context.WithoutCancel(ctx))
			require.Equal(b, "kept", own.Value(valueKey{}))
			background = bubble.Waiting(b, own, m.Acquire)
			again, err := m.Acquire(ctx)
			require.NoError(b, err, "the owner's context still re-enters")
			return again.Release()
		}))
		lease := bubble.Granted(b, background)
		require.Greater(b, lease.FencingToken(), outer.FencingToken())
		nested, err := m.Acquire(lease.Context())
		require.NoError(b, err, "the new hold is carried")
		b.Release(nested, lease)
	})
}

// The new context ends with the old one, and with its cause.
func TestWithoutHoldEndsWithItsContext(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		m := made(mutex.New(b.Client(), "/a"))
		lease := bubble.Acquire(b, m.Acquire)
		own, cancel := context.WithTimeout(recipes.WithoutHold(lease.Context()), time.Hour)
		defer cancel()
		background := bubble.Waiting(b, own, m.Acquire)
		b.Release(lease)
		<-own.Done()
		require.ErrorIs(b, context.Cause(own), recipes.ErrReleased)
		got := bubble.Receive(b, background)
		if got.Err == nil { // granted in the same moment
			b.Release(got.Lease)
		} else {
			require.ErrorIs(b, got.Err, context.Canceled)
		}
		b.Srv.RequireIdle(b)
	})
}

// WithoutHold hides the holds of all locks: of a multilock, and of a writer from its reader.
func TestWithoutHoldHidesEachHold(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		pair := made(rwlock.New(client, "/rw"))
		writer := bubble.Acquire(b, pair.WriteLock().Acquire)
		_, err := pair.ReadLock().TryAcquire(recipes.WithoutHold(writer.Context()))
		require.ErrorIs(b, err, recipes.ErrNotAcquired)

		several := made(multilock.NewMutexes(client, []string{"/1", "/2"}))
		all := bubble.Acquire(b, several.Acquire)
		for _, path := range []string{"/1", "/2"} {
			_, err := made(mutex.New(client, path)).TryAcquire(recipes.WithoutHold(all.Context()))
			require.ErrorIs(b, err, recipes.ErrNotAcquired)
		}
		b.Release(all, writer)
	})
}
