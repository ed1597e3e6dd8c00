package mutex_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// cohort returns a mutex of the client's cohort.
func (f *fixture) cohort(client *recipes.Client, bounds mutex.Cohort) *mutex.InterProcessMutex {
	f.Helper()
	return f.mutex(client, mutex.WithCohort(bounds))
}

// waitInside starts an Acquire that waits without a znode of its own.
func (f *fixture) waitInside(ctx context.Context, m *mutex.InterProcessMutex) <-chan result {
	f.Helper()
	before := f.queue()
	done := acquiring(ctx, m)
	pass(moment)
	require.Equal(f, before, f.queue(), "no znode of its own")
	require.Empty(f, done)
	return done
}

// Callers inside get the lock in the order of their arrival, on one znode and with one token, and a pass sends
// nothing.
func TestCohortPassesInOrderWithoutARequest(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		bounds := mutex.Cohort{MaxPasses: 3, MaxTenure: moment} // nobody from elsewhere waits: no bounds
		first := acquire(f.T, f.cohort(client, bounds))
		var waiters []<-chan result
		for range 20 {
			waiters = append(waiters, f.waitInside(f.Context(), f.cohort(client, bounds)))
		}
		log := f.srv.Observe()
		lease := first
		for i, waiter := range waiters {
			require.NoError(f, lease.Release())
			require.ErrorIs(f, context.Cause(lease.Context()), recipes.ErrReleased)
			lease = f.granted(waiter)
			require.Equal(f, first.FencingToken(), lease.FencingToken())
			require.Equal(f, first.Path(), lease.Path())
			for _, later := range waiters[i+1:] {
				require.Empty(f, later)
			}
			pause(moment / 100)
		}
		require.Zero(f, log.Count(), log.Requests())
		require.Len(f, f.queue(), 1)
		require.NoError(f, lease.Release())
		require.Empty(f, f.queue(), "the znode goes with the last lease")
	})
}

// A contender from elsewhere waits for MaxPasses passes at most. Then the cohort queues behind it.
func TestCohortYieldsAfterMaxPasses(t *testing.T) {
	for _, at := range []int{0, 1, 7} { // passes before the contender comes
		inBubble(t, func(f *fixture) {
			m := f.cohort(f.troubled(), mutex.Cohort{MaxPasses: 5, MaxTenure: time.Hour})
			lease := acquire(f.T, m)
			var waiters []<-chan result
			for range 30 {
				waiters = append(waiters, f.waitInside(f.Context(), m))
			}
			for range at {
				require.NoError(f, lease.Release())
				lease, waiters = f.granted(waiters[0]), waiters[1:]
			}
			remote := f.waiting(f.Context(), f.mutex(f.client()))
			for range 5 {
				require.NoError(f, lease.Release())
				lease, waiters = f.granted(waiters[0]), waiters[1:]
				pass(moment)
				require.Empty(f, remote)
			}
			require.NoError(f, lease.Release())
			other := f.granted(remote)
			pass(moment)
			require.Empty(f, waiters[0])
			require.Len(f, f.queue(), 2, "the cohort waits as one")
			require.Equal(f, other.Path(), f.queue()[0])
			require.Greater(f, other.FencingToken(), lease.FencingToken())
			require.NoError(f, other.Release())
			next := f.granted(waiters[0])
			require.Greater(f, next.FencingToken(), other.FencingToken())
			for _, waiter := range waiters[1:] { // the contender has gone: no bounds
				require.NoError(f, next.Release())
				token := next.FencingToken()
				next = f.granted(waiter)
				require.Equal(f, token, next.FencingToken())
			}
			require.NoError(f, next.Release())
			require.Empty(f, f.queue())
		})
	}
}

// The zero Cohort has the documented bounds.
func TestCohortDefaults(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.cohort(f.troubled(), mutex.Cohort{})
		lease := acquire(f.T, m)
		var waiters []<-chan result
		for range 110 {
			waiters = append(waiters, f.waitInside(f.Context(), m))
		}
		remote := f.waiting(f.Context(), f.mutex(f.client()))
		passes := 0
		for ; ; passes++ {
			require.NoError(f, lease.Release())
			if pass(0); len(remote) > 0 {
				break
			}
			lease = f.granted(waiters[passes])
		}
		require.Equal(f, 100, passes)
		require.NoError(f, f.granted(remote).Release())

		lease = f.granted(waiters[100])
		pass(moment)
		remote = f.waiting(f.Context(), f.mutex(f.client())) // takes a moment
		pass(90*time.Millisecond - 1)
		require.NoError(f, lease.Release())
		lease = f.granted(waiters[101])
		pass(1)
		require.Empty(f, remote)
		require.NoError(f, lease.Release())
		require.NoError(f, f.granted(remote).Release(), "after 100 ms")
	})
}

// A contender from elsewhere waits for MaxTenure and the lease that stands then, at most.
func TestCohortYieldsAfterMaxTenure(t *testing.T) {
	inBubble(t, func(f *fixture) {
		const tenure = time.Minute
		m := f.cohort(f.troubled(), mutex.Cohort{MaxPasses: 1000, MaxTenure: tenure})
		lease := acquire(f.T, m)
		var waiters []<-chan result
		for range 30 {
			waiters = append(waiters, f.waitInside(f.Context(), m))
		}
		pass(3 * tenure) // does not count: nobody from elsewhere waits
		require.NoError(f, lease.Release())
		lease, waiters = f.granted(waiters[0]), waiters[1:]
		remote := f.waiting(f.Context(), f.mutex(f.client()))
		pass(tenure - 2*moment)
		require.NoError(f, lease.Release())
		lease, waiters = f.granted(waiters[0]), waiters[1:]
		pass(moment)
		f.stands(lease)
		require.Empty(f, remote)
		require.NoError(f, lease.Release())
		other := f.granted(remote)
		require.NoError(f, other.Release())
		require.Greater(f, f.granted(waiters[0]).FencingToken(), other.FencingToken())
	})
}

// One that has arrived before the cohort got the lock is not overlooked.
func TestCohortKnowsWhoCameBefore(t *testing.T) {
	inBubble(t, func(f *fixture) {
		holder := acquire(f.T, f.mutex(f.client()))
		m := f.cohort(f.troubled(), mutex.Cohort{MaxPasses: 2, MaxTenure: time.Hour})
		waiters := []<-chan result{f.waiting(f.Context(), m)}
		for range 3 {
			waiters = append(waiters, f.waitInside(f.Context(), m))
		}
		remote := f.waiting(f.Context(), f.mutex(f.client()))
		pass(time.Hour)
		require.NoError(f, holder.Release())
		for _, waiter := range waiters[:3] {
			require.NoError(f, f.granted(waiter).Release())
		}
		require.NoError(f, f.granted(remote).Release())
		require.NoError(f, f.granted(waiters[3]).Release())
	})
}

func TestCohortBounds(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client, other := f.client(), f.client()
		for _, negative := range []mutex.Cohort{{MaxPasses: -1}, {MaxTenure: -1}, {Linger: -1}} {
			_, err := mutex.New(client, lock, mutex.WithCohort(negative))
			require.ErrorIs(f, err, recipes.ErrInvalidArgument)
		}
		zero := f.cohort(client, mutex.Cohort{})
		same := f.cohort(client, mutex.Cohort{MaxPasses: 100, MaxTenure: 100 * time.Millisecond})
		for _, different := range []mutex.Cohort{{MaxPasses: 99}, {MaxTenure: time.Second}, {Linger: 1}} {
			_, err := mutex.New(client, lock, mutex.WithCohort(different))
			require.ErrorIs(f, err, recipes.ErrInvalidArgument)
			require.ErrorContains(f, err, "mutex: new "+lock)
			f.cohort(other, different)
			other = f.client()
			_, err = mutex.New(client, lock+"b"+different.MaxTenure.String()+different.Linger.String(), mutex.WithCohort(different))
			require.NoError(f, err, "another path")
		}
		lease := acquire(f.T, zero)
		waiter := f.waitInside(f.Context(), same)
		require.NoError(f, lease.Release())
		require.NoError(f, f.granted(waiter).Release())
	})
}

// A mutex of the same client without the option is a contender from elsewhere. With the context of a lease
// of the cohort it re-enters, and the other way round.
func TestCohortBesideAPlainMutexOfTheClient(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		m, plain := f.cohort(client, mutex.Cohort{MaxPasses: 1, MaxTenure: time.Hour}), f.mutex(client)
		lease := acquire(f.T, m)
		var waiters []<-chan result
		for range 3 {
			waiters = append(waiters, f.waitInside(f.Context(), m))
		}
		inner, err := plain.Acquire(lease.Context())
		require.NoError(f, err)
		require.Equal(f, lease.Path(), inner.Path())
		remote := f.waiting(f.Context(), plain)
		require.NoError(f, lease.Release())
		pass(moment)
		require.Empty(f, waiters[0], "the inner lease stands")
		f.stands(inner)
		require.NoError(f, inner.Release())
		require.NoError(f, f.granted(waiters[0]).Release())
		outer := f.granted(remote)
		inner, err = m.TryAcquire(outer.Context())
		require.NoError(f, err)
		require.Equal(f, outer.Path(), inner.Path())
		require.NoError(f, outer.Release())
		pass(moment)
		require.Empty(f, waiters[1])
		require.NoError(f, inner.Release())
		require.NoError(f, f.granted(waiters[1]).Release())
		require.NoError(f, f.granted(waiters[2]).Release())
		require.Empty(f, f.queue())
	})
}

// A context carries one lease, not the znode: after its release it does not enter the lease of the next caller.
func TestCohortContextOfALeaseThatWasPassedOn(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.cohort(f.client(), mutex.Cohort{})
		first := acquire(f.T, m)
		waiter := f.waitInside(f.Context(), m)
		require.NoError(f, first.Release())
		second := f.granted(waiter)
		for _, ctx := range []context.Context{first.Context(), context.WithoutCancel(first.Context())} {
			_, err := m.Acquire(ctx)
			require.ErrorIs(f, err, recipes.ErrReleased)
		}
		require.ErrorIs(f, first.Release(), recipes.ErrNotHeld)
		f.stands(second)
		inner, err := m.Acquire(second.Context())
		require.NoError(f, err)
		require.NoError(f, second.Release())
		f.stands(inner)
		require.Len(f, f.queue(), 1)
		require.NoError(f, inner.Release())
		require.Empty(f, f.queue())
	})
}
