package semaphore_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// The limit falls below a request that waits first in the queue. The requests behind it are served. It is served once the limit
// is raised.
func TestRequestAboveTheLimitLetsOthersPass(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		admin := b.Client()
		set := func(n int) { require.NoError(b, semaphore.SetSharedLimit(b.Context(), admin, shared, n)) }
		set(8)
		log := &testkit.Log{}
		holder, large := sharedOf(b, b.Client(), 8), sharedOf(b, b.Client(recipes.WithLogger(log.Logger(slog.LevelWarn))), 8)
		held := bubble.Acquire(b, locks.Many(holder, 3))
		seven := bubble.Waiting(b, b.Context(), locks.Many(large, 7))
		two := bubble.Waiting(b, b.Context(), locks.Many(holder, 2))
		four := bubble.Waiting(b, b.Context(), locks.Many(holder, 4))
		set(6)
		bubble.Pass(bubble.Moment)
		require.Empty(b, seven)
		small := bubble.Granted(b, two)
		require.Empty(b, four, "the limit of 6 holds")
		locks.ReleaseAll(b, held)
		locks.ReleaseAll(b, bubble.Granted(b, four))
		require.Equal(b, []string{
			`level=WARN msg="request exceeds the shared limit; waiting until the limit is raised" path=/permits/a permits=7 limit=6`,
		}, log.Take())
		bubble.Pass(time.Minute)
		require.Empty(b, b.Queue(locks.Turns), "no turn is held meanwhile")
		require.Empty(b, seven)
		set(7)
		bubble.Pass(bubble.Moment)
		require.Empty(b, seven, "two are held")
		locks.ReleaseAll(b, small)
		locks.ReleaseAll(b, bubble.Granted(b, seven))
		locks.RequireNoPermits(b)
	})
}

// The error of a request that the limit forbids says so, whether the limit was lowered before or during the wait.
func TestErrorOfARequestAboveTheLimit(t *testing.T) {
	for name, lowered := range map[string]int{"below the request": 3, "to zero": 0} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				admin := b.Client()
				require.NoError(b, semaphore.SetSharedLimit(b.Context(), admin, shared, 5))
				log := &testkit.Log{}
				s := sharedOf(b, b.Client(recipes.WithLogger(log.Logger(slog.LevelWarn))), 5)
				held := bubble.Acquire(b, locks.Many(s, 2))
				ctx, cancel := context.WithTimeout(b.Context(), 90*time.Second)
				defer cancel()
				waiting := bubble.Waiting(b, ctx, locks.Many(s, 4))
				require.NoError(b, semaphore.SetSharedLimit(b.Context(), admin, shared, lowered))
				bubble.Pass(time.Second)
				locks.ReleaseAll(b, held)
				err := bubble.Receive(b, waiting).Err
				require.ErrorIs(b, err, context.DeadlineExceeded)
				require.ErrorIs(b, err, semaphore.ErrAboveLimit)
				wait := &recipes.WaitError{}
				require.ErrorAs(b, err, &wait)
				require.Zero(b, wait.Holder)
				want := "4 permits: more than the shared limit of 3"
				if lowered == 0 {
					want = "4 permits: more than the shared limit of 0"
					require.Equal(b, []string{
						`level=WARN msg="slow wait" path=/permits/a waited=1m0s position=1 waiters=1 err="4 permits: more than the shared limit of 0"`,
					}, log.Take(), "the first in the queue keeps its place, because no other request fits")
				}
				require.ErrorContains(b, err, want)
				bubble.Pass(bubble.Moment)
				locks.RequireNoPermits(b)

				_, err = s.TryAcquireN(b.Context(), 4)
				require.ErrorIs(b, err, recipes.ErrNotAcquired)
				require.ErrorIs(b, err, semaphore.ErrAboveLimit)
				require.ErrorContains(b, err, want)
				locks.RequireNoPermits(b)
			})
		})
	}
}

// Requests above the limit lose their session, and are closed with their client, while they hold no turn.
func TestRequestAboveTheLimitInAnOutage(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		admin, troubled := b.Client(), b.Troubled()
		require.NoError(b, semaphore.SetSharedLimit(b.Context(), admin, shared, 2))
		large := bubble.Waiting(b, b.Context(), locks.Many(sharedOf(b, troubled, 2), 3))
		b.ExpireUnheard(troubled)
		bubble.Pass(time.Minute)
		over := b.Outage()
		require.NoError(b, semaphore.SetSharedLimit(b.Context(), admin, shared, 3))
		bubble.Pass(time.Minute)
		over()
		locks.ReleaseAll(b, bubble.Granted(b, large))
		again := bubble.Waiting(b, b.Context(), locks.Many(sharedOf(b, troubled, 2), 4))
		require.NoError(b, troubled.Close())
		require.ErrorIs(b, bubble.Receive(b, again).Err, recipes.ErrClosed)
		locks.RequireNoPermits(b)
	})
}
