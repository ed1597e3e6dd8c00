package semaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
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

// A bound without a unit, such as WithMaxHold(30), is over before Acquire returns. The permit is acquired all the same, as a mutex is.
func TestMaxHoldThatIsOverAtOnce(t *testing.T) {
	srv := zktest.NewServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s, err := semaphore.New(testclient.Connect(t, srv), locks.Semaphore, 2, semaphore.WithMaxHold(30))
	require.NoError(t, err)
	leases, err := s.AcquireN(ctx, 2)
	require.NoError(t, err)
	for _, lease := range leases {
		require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrMaxHold)
		require.NoError(t, lease.Release())
	}
}
