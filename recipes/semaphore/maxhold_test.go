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

// The bound counts for each permit, from its grant. The wait for a permit does not count.
func TestMaxHold(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const maxHold = 10 * time.Second
		s := locks.SemaphoreOf(b, b.Client(), 1, semaphore.WithMaxHold(maxHold))
		lease := bubble.Acquire(b, s.Acquire)
		waiting := bubble.Waiting(b, b.Context(), s.Acquire)
		bubble.Pass(maxHold)
		require.ErrorIs(b, b.Cause(lease), recipes.ErrMaxHold)
		bubble.Pass(maxHold)
		require.Empty(b, waiting)
		b.Release(lease)
		next := bubble.Granted(b, waiting)
		bubble.Pass(maxHold - time.Second)
		b.Stands(next)
		b.Release(next)
		locks.RequireNoPermits(b)
		_, err := semaphore.New(b.Client(), locks.Semaphore, 1, semaphore.WithMaxHold(0))
		require.ErrorIs(b, err, recipes.ErrInvalidArgument)
	})
}
