package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// fullSession is a client with room for two contenders: a cohort's, and that of a holder whose waiter takes any free room.
type fullSession struct {
	*bubble.Bubble
	client *recipes.Client
	cohort *mutex.InterProcessMutex
	other  *recipes.Lease
	waiter <-chan bubble.Outcome[*recipes.Lease] // of the other path
}

func newFullSession(b *bubble.Bubble, bounds mutex.Cohort) (f *fullSession, lease *recipes.Lease) {
	b.Helper()
	limit := 2 * costOf("/c", "lock-")
	requireBudget(b, limit)
	client := b.Troubled(recipes.WithMaxSessionBytes(limit))
	m, err := mutex.New(client, "/c", mutex.WithCohort(bounds))
	require.NoError(b, err)
	other := mutexOn(b, client, "/o")
	f = &fullSession{Bubble: b, client: client, cohort: m, other: bubble.Acquire(b, other.Acquire)}
	lease = bubble.Acquire(b, m.Acquire)
	f.waiter = bubble.Start(b.Context(), other.Acquire)
	bubble.Pass(bubble.Moment)
	return f, lease
}

func (f *fullSession) inside() <-chan bubble.Outcome[*recipes.Lease] {
	f.Helper()
	waiter := bubble.Start(f.Context(), f.cohort.Acquire)
	bubble.Pass(bubble.Moment)
	require.Empty(f, waiter)
	return waiter
}

// end releases all locks, and requires that no znode is left.
func (f *fullSession) end() {
	f.Helper()
	_ = f.other.Release() // may be lost
	f.Release(bubble.Granted(f.Bubble, f.waiter))
	bubble.Pass(time.Second)
	require.Empty(f, ephemerals(f.Srv, "/", map[int64]int{}))
	f.Release(bubble.Acquire(f.Bubble, mutexOn(f, f.client, "/x").Acquire), bubble.Acquire(f.Bubble, mutexOn(f, f.client, "/y").Acquire))
}

// In a full session a cohort passes the lock on, takes any number of callers, yields, and queues again. Only where this client has
// no contender its callers are refused.
func TestCohortInAFullSession(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		f, lease := newFullSession(b, mutex.Cohort{MaxPasses: 1, MaxTenure: time.Hour})
		waiters := []<-chan bubble.Outcome[*recipes.Lease]{f.inside(), f.inside(), f.inside()}
		remote := bubble.Waiting(b, b.Context(), mutexOn(b, b.Client(), "/c").Acquire)
		b.Release(lease)
		lease = bubble.Granted(b, waiters[0])
		b.Release(lease)
		got := bubble.Granted(b, remote)
		bubble.Pass(time.Second)
		require.Len(b, b.Srv.Children("/c"), 2, "the cohort waits again")
		b.Release(got)
		for _, waiter := range waiters[1:] {
			lease = bubble.Granted(b, waiter)
			b.Release(lease)
		}
		bubble.Pass(time.Second)
		require.Empty(b, b.Srv.Children("/c"))
		require.Len(b, b.Srv.Children("/o"), 2, "the other path has the room now")
		requireFull(b, f.cohort.Acquire)
		requireFull(b, f.cohort.TryAcquire)
		b.Release(f.other)
		lease = bubble.Acquire(b, f.cohort.Acquire)
		b.Release(lease)
		f.end()
	})
}

// However a cohort loses its znode, the callers inside keep their turns, and the znode's room.
func TestCohortThatLosesItsZnodeInAFullSession(t *testing.T) {
	for name, c := range map[string]struct {
		lose  func(f *fullSession, lease *recipes.Lease)
		cause error
	}{
		"deleted": {func(f *fullSession, lease *recipes.Lease) { f.Srv.Delete(lease.Path()) }, recipes.ErrNodeDeleted},
		"expired": {func(f *fullSession, _ *recipes.Lease) { f.ExpireUnheard(f.client) }, recipes.ErrSessionLost},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				f, lease := newFullSession(b, mutex.Cohort{})
				waiters := []<-chan bubble.Outcome[*recipes.Lease]{f.inside(), f.inside()}
				c.lose(f, lease)
				require.ErrorIs(b, b.Cause(lease), c.cause)
				for _, waiter := range waiters {
					b.Release(bubble.Granted(b, waiter))
				}
				f.end()
			})
		})
	}
}

// A cohort that lingers in a full session makes room, when a caller gives up too.
func TestCohortMakesRoom(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		f, lease := newFullSession(b, mutex.Cohort{Linger: time.Minute})
		ctx, cancel := context.WithCancel(b.Context())
		waiter := bubble.Start(ctx, f.cohort.Acquire)
		bubble.Pass(bubble.Moment)
		cancel()
		require.ErrorIs(b, bubble.Receive(b, waiter).Err, context.Canceled)
		b.Release(lease)
		log := b.Srv.Observe()
		bubble.Pass(time.Minute - bubble.Moment)
		requireOnlyRereads(b, log, "/c", "/o")
		bubble.Pass(time.Second)
		require.Len(b, b.Srv.Children("/o"), 2)
		f.end()
	})
}
