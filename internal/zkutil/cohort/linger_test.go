package cohort_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A lingering cohort acquires again without a request, and its znode is deleted at the end of the linger time.
func TestCohortLingers(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		const linger = 500 * time.Millisecond
		m := cohortOf(f, f.Client(recipes.WithSessionTimeout(time.Hour)), mutex.Cohort{Linger: linger})
		first := bubble.Acquire(f.T, m.Acquire)
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
		again := bubble.Acquire(f.T, m.Acquire)
		require.Greater(f, again.FencingToken(), first.FencingToken())
		require.NoError(f, again.Release())
	})
}

// A contender from elsewhere ends the lingering at once.
func TestCohortGivesUpLingeringForAnother(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Troubled(), mutex.Cohort{Linger: time.Hour})
		for range 3 {
			lease := bubble.Acquire(f.T, m.Acquire)
			require.NoError(f, lease.Release())
			bubble.Pass(time.Minute)
			other := f.Mutex(f.Client())
			f.Srv.SlowCommits(bubble.Moment) // otherwise the cohort may leave before the other lists the queue
			_, err := other.TryAcquire(f.Context())
			f.Srv.SlowCommits(0)
			require.ErrorIs(f, err, recipes.ErrNotAcquired, "the client counts as the holder")
			bubble.Pass(2 * bubble.Moment)
			require.Empty(f, f.Contenders(), "given up")

			lease = bubble.Acquire(f.T, m.Acquire)
			require.NoError(f, lease.Release())
			start := time.Now()
			got := bubble.Acquire(f.T, other.Acquire)
			require.Equal(f, start, time.Now())
			require.Greater(f, got.FencingToken(), lease.FencingToken())
			require.NoError(f, got.Release())
		}
	})
}

// A cohort does not linger while another client waits.
func TestCohortDoesNotLingerBeforeAWaiter(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Troubled(), mutex.Cohort{Linger: time.Hour})
		for _, isWaitedFor := range []bool{false, true} {
			lease := bubble.Acquire(f.T, m.Acquire)
			if isWaitedFor {
				require.NoError(f, lease.Release())
				lease = bubble.Acquire(f.T, m.Acquire)
			}
			remote := f.Waiting(f.Context(), f.Mutex(f.Client()))
			start := time.Now()
			require.NoError(f, lease.Release())
			require.NoError(f, bubble.Granted(f, remote).Release())
			require.Equal(f, start, time.Now())
		}
	})
}

// A revocation ends the lingering.
func TestCohortGivesUpLingeringForARevocation(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Client(), mutex.Cohort{Linger: time.Hour})
		lease := bubble.Acquire(f.T, m.Acquire)
		require.NoError(f, lease.Release())
		bubble.Pass(time.Minute)
		attemptRevoke(f, lease.Path())
		require.Empty(f, f.Contenders())
		next := bubble.Acquire(f.T, m.Acquire)
		require.Greater(f, next.FencingToken(), lease.FencingToken())
		require.NoError(f, next.Release())
	})
}

// A znode lost with its session during the linger time is not used again.
func TestCohortThatLosesItsSessionWhileLingering(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled()
		m := cohortOf(f, client, mutex.Cohort{Linger: time.Hour})
		lease := bubble.Acquire(f.T, m.Acquire)
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

// A cohort that may not list its queue assumes that others wait: it passes the lock on as often as its bounds allow, and warns once.
func TestCohortThatMayNotList(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Client(recipes.WithSessionTimeout(time.Hour), recipes.WithLogger(log.Logger(slog.LevelWarn)))
		m := cohortOf(f, client, mutex.Cohort{MaxPasses: 2, MaxTenure: time.Hour, Linger: time.Minute})
		lease := bubble.Acquire(f.T, m.Acquire)
		allow := elections.Forbid(f.Srv, zktest.OpGetChildren2)
		var waiters []<-chan bubble.Outcome[*recipes.Lease]
		for range 3 {
			waiters = append(waiters, waitInside(f, f.Context(), m))
		}
		first := lease.Path()
		for _, waiter := range waiters[:2] {
			f.Release(lease)
			lease = bubble.Granted(f.T, waiter)
			require.Equal(f, first, lease.Path())
		}
		f.Release(lease)
		require.ErrorIs(f, bubble.Receive(f.T, waiters[2]).Err, zk.ErrNoAuth, "it has to queue behind the others")
		bubble.Pass(bubble.Moment)
		require.Empty(f, f.Contenders())
		allow()
		lines := locks.TakeLog(log)
		require.Len(f, lines, 1)
		require.Contains(f, lines[0], `msg="cohort can't list its queue; assuming that others wait" path=/locks/a err="`)
		lease = bubble.Acquire(f.T, m.Acquire)
		f.Release(lease)
		bubble.Pass(bubble.Moment)
		require.Len(f, f.Contenders(), 1, "it lingers")
	})
}
