package cohort_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// cohortOf returns a mutex of the client's cohort.
func cohortOf(f *locks.Fixture, client *recipes.Client, bounds mutex.Cohort) *mutex.InterProcessMutex {
	f.Helper()
	return f.Mutex(client, mutex.WithCohort(bounds))
}

// waitInside starts an Acquire that waits without its own znode.
func waitInside(f *locks.Fixture, ctx context.Context, m *mutex.InterProcessMutex) <-chan bubble.Outcome[*recipes.Lease] { //nolint:revive // as testing.TB is the first parameter
	f.Helper()
	before := f.Contenders()
	done := bubble.Start(ctx, m.Acquire)
	bubble.Pass(bubble.Moment)
	require.Equal(f, before, f.Contenders(), "no znode of its own")
	require.Empty(f, done)
	return done
}

// Callers inside get the lock in the order of their arrival, on one znode and with one token, and a pass sends
// nothing.
func TestCohortPassesInOrderWithoutARequest(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		bounds := mutex.Cohort{MaxPasses: 3, MaxTenure: bubble.Moment} // no waiter in another client, so no bounds
		first := bubble.Acquire(f.T, cohortOf(f, client, bounds).Acquire)
		var waiters []<-chan bubble.Outcome[*recipes.Lease]
		for range 20 {
			waiters = append(waiters, waitInside(f, f.Context(), cohortOf(f, client, bounds)))
		}
		log := f.Srv.Observe()
		lease := first
		for i, waiter := range waiters {
			require.NoError(f, lease.Release())
			require.ErrorIs(f, context.Cause(lease.Context()), recipes.ErrReleased)
			lease = bubble.Granted(f, waiter)
			require.Equal(f, first.FencingToken(), lease.FencingToken())
			require.Equal(f, first.Path(), lease.Path())
			for _, later := range waiters[i+1:] {
				require.Empty(f, later)
			}
			bubble.Pause(bubble.Moment / 100)
		}
		require.Zero(f, log.Count(), log.Requests())
		require.Len(f, f.Contenders(), 1)
		require.NoError(f, lease.Release())
		require.Empty(f, f.Contenders(), "the znode goes with the last lease")
	})
}

// A contender from elsewhere waits for MaxPasses passes at most. Then the cohort queues behind it.
func TestCohortYieldsAfterMaxPasses(t *testing.T) {
	for _, at := range []int{0, 1, 7} { // passes before the contender arrives
		locks.Run(t, func(f *locks.Fixture) {
			m := cohortOf(f, f.Troubled(), mutex.Cohort{MaxPasses: 5, MaxTenure: time.Hour})
			lease := bubble.Acquire(f.T, m.Acquire)
			var waiters []<-chan bubble.Outcome[*recipes.Lease]
			for range 30 {
				waiters = append(waiters, waitInside(f, f.Context(), m))
			}
			for range at {
				require.NoError(f, lease.Release())
				lease, waiters = bubble.Granted(f, waiters[0]), waiters[1:]
			}
			remote := f.Waiting(f.Context(), f.Mutex(f.Client()))
			for range 5 {
				require.NoError(f, lease.Release())
				lease, waiters = bubble.Granted(f, waiters[0]), waiters[1:]
				bubble.Pass(bubble.Moment)
				require.Empty(f, remote)
			}
			require.NoError(f, lease.Release())
			other := bubble.Granted(f, remote)
			bubble.Pass(bubble.Moment)
			require.Empty(f, waiters[0])
			require.Len(f, f.Contenders(), 2, "the cohort waits as one")
			require.Equal(f, other.Path(), f.Contenders()[0])
			require.Greater(f, other.FencingToken(), lease.FencingToken())
			require.NoError(f, other.Release())
			next := bubble.Granted(f, waiters[0])
			require.Greater(f, next.FencingToken(), other.FencingToken())
			for _, waiter := range waiters[1:] { // the contender left, so no bounds
				require.NoError(f, next.Release())
				token := next.FencingToken()
				next = bubble.Granted(f, waiter)
				require.Equal(f, token, next.FencingToken())
			}
			require.NoError(f, next.Release())
			require.Empty(f, f.Contenders())
			bubble.Pass(time.Minute)
			log := f.Srv.Observe()
			bubble.Pass(time.Hour)
			require.LessOrEqual(f, log.Count(zktest.OpPing), 2*int(time.Hour/(testclient.SessionTimeout/6)), "the sessions are not in use")
		})
	}
}

// The zero Cohort has the documented bounds.
func TestCohortDefaults(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Troubled(), mutex.Cohort{})
		lease := bubble.Acquire(f.T, m.Acquire)
		var waiters []<-chan bubble.Outcome[*recipes.Lease]
		for range 110 {
			waiters = append(waiters, waitInside(f, f.Context(), m))
		}
		remote := f.Waiting(f.Context(), f.Mutex(f.Client()))
		passes := 0
		for ; ; passes++ {
			require.NoError(f, lease.Release())
			if bubble.Pass(0); len(remote) > 0 {
				break
			}
			lease = bubble.Granted(f, waiters[passes])
		}
		require.Equal(f, 100, passes)
		require.NoError(f, bubble.Granted(f, remote).Release())

		lease = bubble.Granted(f, waiters[100])
		bubble.Pass(bubble.Moment)
		remote = f.Waiting(f.Context(), f.Mutex(f.Client())) // takes a moment
		bubble.Pass(90*time.Millisecond - 1)
		require.NoError(f, lease.Release())
		lease = bubble.Granted(f, waiters[101])
		bubble.Pass(1)
		require.Empty(f, remote)
		require.NoError(f, lease.Release())
		require.NoError(f, bubble.Granted(f, remote).Release(), "after 100 ms")
	})
}

// A contender from elsewhere waits for MaxTenure and the lease that stands then, at most.
func TestCohortYieldsAfterMaxTenure(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		const tenure = time.Minute
		m := cohortOf(f, f.Troubled(), mutex.Cohort{MaxPasses: 1000, MaxTenure: tenure})
		lease := bubble.Acquire(f.T, m.Acquire)
		var waiters []<-chan bubble.Outcome[*recipes.Lease]
		for range 30 {
			waiters = append(waiters, waitInside(f, f.Context(), m))
		}
		bubble.Pass(3 * tenure) // does not count without a waiter in another client
		require.NoError(f, lease.Release())
		lease, waiters = bubble.Granted(f, waiters[0]), waiters[1:]
		remote := f.Waiting(f.Context(), f.Mutex(f.Client()))
		bubble.Pass(tenure - 2*bubble.Moment)
		require.NoError(f, lease.Release())
		lease, waiters = bubble.Granted(f, waiters[0]), waiters[1:]
		bubble.Pass(bubble.Moment)
		f.Stands(lease)
		require.Empty(f, remote)
		require.NoError(f, lease.Release())
		other := bubble.Granted(f, remote)
		require.NoError(f, other.Release())
		require.Greater(f, bubble.Granted(f, waiters[0]).FencingToken(), other.FencingToken())
	})
}

// A contender that arrived before the cohort got the lock is noticed.
func TestCohortNoticesEarlierContenders(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		m := cohortOf(f, f.Troubled(), mutex.Cohort{MaxPasses: 2, MaxTenure: time.Hour})
		waiters := []<-chan bubble.Outcome[*recipes.Lease]{f.Waiting(f.Context(), m)}
		for range 3 {
			waiters = append(waiters, waitInside(f, f.Context(), m))
		}
		remote := f.Waiting(f.Context(), f.Mutex(f.Client()))
		bubble.Pass(time.Hour)
		require.NoError(f, holder.Release())
		for _, waiter := range waiters[:3] {
			require.NoError(f, bubble.Granted(f, waiter).Release())
		}
		require.NoError(f, bubble.Granted(f, remote).Release())
		require.NoError(f, bubble.Granted(f, waiters[3]).Release())
	})
}

func TestCohortBounds(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client, other := f.Client(), f.Client()
		for _, negative := range []mutex.Cohort{{MaxPasses: -1}, {MaxTenure: -1}, {Linger: -1}} {
			_, err := mutex.New(client, locks.Path, mutex.WithCohort(negative))
			require.ErrorIs(f, err, recipes.ErrInvalidArgument)
		}
		zero := cohortOf(f, client, mutex.Cohort{})
		same := cohortOf(f, client, mutex.Cohort{MaxPasses: 100, MaxTenure: 100 * time.Millisecond})
		for _, different := range []mutex.Cohort{{MaxPasses: 99}, {MaxTenure: time.Second}, {Linger: 1}} {
			_, err := mutex.New(client, locks.Path, mutex.WithCohort(different))
			require.ErrorIs(f, err, recipes.ErrInvalidArgument)
			require.ErrorContains(f, err, "mutex: new "+locks.Path)
			cohortOf(f, other, different)
			other = f.Client()
			_, err = mutex.New(client, locks.Path+"b"+different.MaxTenure.String()+different.Linger.String(), mutex.WithCohort(different))
			require.NoError(f, err, "another path")
		}
		lease := bubble.Acquire(f.T, zero.Acquire)
		waiter := waitInside(f, f.Context(), same)
		require.NoError(f, lease.Release())
		require.NoError(f, bubble.Granted(f, waiter).Release())
	})
}

// A mutex of the same client without the option is a contender from elsewhere. With the context of a lease
// of the cohort it re-enters, and the other way round.
func TestCohortBesideAPlainMutexOfTheClient(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		m, plain := cohortOf(f, client, mutex.Cohort{MaxPasses: 1, MaxTenure: time.Hour}), f.Mutex(client)
		lease := bubble.Acquire(f.T, m.Acquire)
		var waiters []<-chan bubble.Outcome[*recipes.Lease]
		for range 3 {
			waiters = append(waiters, waitInside(f, f.Context(), m))
		}
		inner, err := plain.Acquire(lease.Context())
		require.NoError(f, err)
		require.Equal(f, lease.Path(), inner.Path())
		remote := f.Waiting(f.Context(), plain)
		require.NoError(f, lease.Release())
		bubble.Pass(bubble.Moment)
		require.Empty(f, waiters[0], "the inner lease stands")
		f.Stands(inner)
		require.NoError(f, inner.Release())
		require.NoError(f, bubble.Granted(f, waiters[0]).Release())
		outer := bubble.Granted(f, remote)
		inner, err = m.TryAcquire(outer.Context())
		require.NoError(f, err)
		require.Equal(f, outer.Path(), inner.Path())
		require.NoError(f, outer.Release())
		bubble.Pass(bubble.Moment)
		require.Empty(f, waiters[1])
		require.NoError(f, inner.Release())
		require.NoError(f, bubble.Granted(f, waiters[1]).Release())
		require.NoError(f, bubble.Granted(f, waiters[2]).Release())
		require.Empty(f, f.Contenders())
	})
}

// A context carries one lease, not the znode. After its release it does not enter the next caller's lease.
func TestCohortContextOfALeaseThatWasPassedOn(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Client(), mutex.Cohort{})
		first := bubble.Acquire(f.T, m.Acquire)
		waiter := waitInside(f, f.Context(), m)
		require.NoError(f, first.Release())
		second := bubble.Granted(f, waiter)
		for _, ctx := range []context.Context{first.Context(), context.WithoutCancel(first.Context())} {
			_, err := m.Acquire(ctx)
			require.ErrorIs(f, err, recipes.ErrReleased)
		}
		require.ErrorIs(f, first.Release(), recipes.ErrNotHeld)
		f.Stands(second)
		inner, err := m.Acquire(second.Context())
		require.NoError(f, err)
		require.NoError(f, second.Release())
		f.Stands(inner)
		require.Len(f, f.Contenders(), 1)
		require.NoError(f, inner.Release())
		require.Empty(f, f.Contenders())
	})
}
