package cohort_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// A lingering cohort acquires again without a request, and its znode goes when it has lingered.
func TestCohortLingers(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		const linger = 500 * time.Millisecond
		m := cohortOf(f, f.Client(recipes.WithSessionTimeout(time.Hour)), mutex.Cohort{Linger: linger})
		first := locks.Acquire(f.T, m)
		require.NoError(f, first.Release())
		bubble.Pass(bubble.Moment)
		require.Equal(f, []string{first.Path()}, f.Contenders())
		log := f.Srv.Observe()
		for i := range 50 {
			attempts := []locks.Attempt{m.Acquire, m.TryAcquire}
			lease, err := attempts[i%2](f.Context())
			require.NoError(f, err)
			require.Equal(f, first.FencingToken(), lease.FencingToken())
			bubble.Pass(linger) // a long lease does not count
			require.NoError(f, lease.Release())
			bubble.Pass(linger - bubble.Moment)
		}
		require.Zero(f, log.Count(), log.Requests())
		bubble.Pass(bubble.Moment - 1)
		require.Len(f, f.Contenders(), 1)
		bubble.Pass(1)
		require.Empty(f, f.Contenders())
		again := locks.Acquire(f.T, m)
		require.Greater(f, again.FencingToken(), first.FencingToken())
		require.NoError(f, again.Release())
	})
}

// A contender from elsewhere ends the lingering at once.
func TestCohortGivesUpLingeringForAnother(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Troubled(), mutex.Cohort{Linger: time.Hour})
		for range 3 {
			lease := locks.Acquire(f.T, m)
			require.NoError(f, lease.Release())
			bubble.Pass(time.Minute)
			other := f.Mutex(f.Client())
			_, err := other.TryAcquire(f.Context())
			require.ErrorIs(f, err, recipes.ErrNotAcquired, "the client counts as the holder")
			bubble.Pass(bubble.Moment)
			require.Empty(f, f.Contenders(), "given up")

			lease = locks.Acquire(f.T, m)
			require.NoError(f, lease.Release())
			start := time.Now()
			got := locks.Acquire(f.T, other)
			require.Equal(f, start, time.Now())
			require.Greater(f, got.FencingToken(), lease.FencingToken())
			require.NoError(f, got.Release())
		}
	})
}

// A cohort does not linger while somebody from elsewhere waits.
func TestCohortDoesNotLingerBeforeAWaiter(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Troubled(), mutex.Cohort{Linger: time.Hour})
		for _, isWaitedFor := range []bool{false, true} {
			lease := locks.Acquire(f.T, m)
			if isWaitedFor {
				require.NoError(f, lease.Release())
				lease = locks.Acquire(f.T, m)
			}
			remote := f.Waiting(f.Context(), f.Mutex(f.Client()))
			start := time.Now()
			require.NoError(f, lease.Release())
			require.NoError(f, f.Granted(remote).Release())
			require.Equal(f, start, time.Now())
		}
	})
}

// A revocation ends the lingering.
func TestCohortGivesUpLingeringForARevocation(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Client(), mutex.Cohort{Linger: time.Hour})
		lease := locks.Acquire(f.T, m)
		require.NoError(f, lease.Release())
		bubble.Pass(time.Minute)
		attemptRevoke(f, lease.Path())
		require.Empty(f, f.Contenders())
		next := locks.Acquire(f.T, m)
		require.Greater(f, next.FencingToken(), lease.FencingToken())
		require.NoError(f, next.Release())
	})
}

// A znode that has lingered away with its session is not used again.
func TestCohortThatLosesItsSessionWhileLingering(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled()
		m := cohortOf(f, client, mutex.Cohort{Linger: time.Hour})
		lease := locks.Acquire(f.T, m)
		require.NoError(f, lease.Release())
		bubble.Pass(bubble.Moment)
		f.ExpireUnheard(client)
		bubble.Pass(time.Second)
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		defer cancel()
		next, err := m.Acquire(ctx)
		require.NoError(f, err)
		require.Greater(f, next.FencingToken(), lease.FencingToken())
		require.NoError(f, next.Release())
		require.NoError(f, client.Close())
		require.Empty(f, f.Contenders(), "Close ends the lingering")
	})
}
