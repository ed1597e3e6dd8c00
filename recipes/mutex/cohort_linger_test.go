package mutex_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// A lingering cohort acquires again without a request, and its znode goes when it has lingered.
func TestCohortLingers(t *testing.T) {
	inBubble(t, func(f *fixture) {
		const linger = 500 * time.Millisecond
		m := f.cohort(f.client(recipes.WithSessionTimeout(time.Hour)), mutex.Cohort{Linger: linger})
		first := acquire(f.T, m)
		require.NoError(f, first.Release())
		pass(moment)
		require.Equal(f, []string{first.Path()}, f.queue())
		log := f.srv.Observe()
		for i := range 50 {
			attempts := []attempt{m.Acquire, m.TryAcquire}
			lease, err := attempts[i%2](f.Context())
			require.NoError(f, err)
			require.Equal(f, first.FencingToken(), lease.FencingToken())
			pass(linger) // a long lease does not count
			require.NoError(f, lease.Release())
			pass(linger - moment)
		}
		require.Zero(f, log.Count(), log.Requests())
		pass(moment - 1)
		require.Len(f, f.queue(), 1)
		pass(1)
		require.Empty(f, f.queue())
		again := acquire(f.T, m)
		require.Greater(f, again.FencingToken(), first.FencingToken())
		require.NoError(f, again.Release())
	})
}

// A contender from elsewhere ends the lingering at once.
func TestCohortGivesUpLingeringForAnother(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.cohort(f.troubled(), mutex.Cohort{Linger: time.Hour})
		for range 3 {
			lease := acquire(f.T, m)
			require.NoError(f, lease.Release())
			pass(time.Minute)
			other := f.mutex(f.client())
			_, err := other.TryAcquire(f.Context())
			require.ErrorIs(f, err, recipes.ErrNotAcquired, "the client counts as the holder")
			pass(moment)
			require.Empty(f, f.queue(), "given up")

			lease = acquire(f.T, m)
			require.NoError(f, lease.Release())
			start := time.Now()
			got := acquire(f.T, other)
			require.Equal(f, start, time.Now())
			require.Greater(f, got.FencingToken(), lease.FencingToken())
			require.NoError(f, got.Release())
		}
	})
}

// A cohort does not linger while somebody from elsewhere waits.
func TestCohortDoesNotLingerBeforeAWaiter(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.cohort(f.troubled(), mutex.Cohort{Linger: time.Hour})
		for _, isWaitedFor := range []bool{false, true} {
			lease := acquire(f.T, m)
			if isWaitedFor {
				require.NoError(f, lease.Release())
				lease = acquire(f.T, m)
			}
			remote := f.waiting(f.Context(), f.mutex(f.client()))
			start := time.Now()
			require.NoError(f, lease.Release())
			require.NoError(f, f.granted(remote).Release())
			require.Equal(f, start, time.Now())
		}
	})
}

// A revocation ends the lingering.
func TestCohortGivesUpLingeringForARevocation(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.cohort(f.client(), mutex.Cohort{Linger: time.Hour})
		lease := acquire(f.T, m)
		require.NoError(f, lease.Release())
		pass(time.Minute)
		f.revoke(lease.Path())
		require.Empty(f, f.queue())
		next := acquire(f.T, m)
		require.Greater(f, next.FencingToken(), lease.FencingToken())
		require.NoError(f, next.Release())
	})
}

// A znode that has lingered away with its session is not used again.
func TestCohortThatLosesItsSessionWhileLingering(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.troubled()
		m := f.cohort(client, mutex.Cohort{Linger: time.Hour})
		lease := acquire(f.T, m)
		require.NoError(f, lease.Release())
		pass(moment)
		f.expireUnheard(client)
		pass(time.Second)
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		defer cancel()
		next, err := m.Acquire(ctx)
		require.NoError(f, err)
		require.Greater(f, next.FencingToken(), lease.FencingToken())
		require.NoError(f, next.Release())
		require.NoError(f, client.Close())
		require.Empty(f, f.queue(), "Close ends the lingering")
	})
}
