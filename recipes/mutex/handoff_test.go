package mutex_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// countLists counts the requests for the children of any znode.
func countLists(requests *zktest.Log) int {
	return requests.Count(zktest.OpGetChildren, zktest.OpGetChildren2)
}

// Waiters of one session hand the lock on without looking at the queue, whether they have waited for long or not, and
// none is granted before the deletion of the znode ahead.
func TestWaitersOfOneSessionHandOnWithoutAList(t *testing.T) {
	for _, waited := range []time.Duration{0, time.Minute} {
		inBubble(t, func(f *fixture) {
			const waiters = 10
			m := f.mutex(f.client())
			lease, err := m.Acquire(f.Context())
			require.NoError(f, err)
			var waiting []<-chan result
			for range waiters {
				waiting = append(waiting, f.waiting(f.Context(), m))
			}
			pass(waited)
			requests := f.srv.Observe()
			for _, next := range waiting {
				pass(time.Millisecond)
				before := lease.FencingToken()
				require.NoError(f, lease.Release())
				lease = f.granted(next)
				require.Greater(f, lease.FencingToken(), before)
				require.Equal(f, lease.Path(), f.queue()[0])
			}
			require.Equal(f, waiters, requests.Count(zktest.OpDelete))
			require.Zero(f, countLists(requests))
			if waited == 0 { // a waiter whose successor watches its znode reads nothing; the last has none, and the first did so at once
				require.LessOrEqual(f, requests.Count(zktest.OpGetData), 2)
			}
			require.NoError(f, lease.Release())
		})
	}
}

// A znode that goes ahead of a waiter is no turn unless it was a hold: who was ahead of it is still there.
func TestWaiterThatGivesUpHandsNothingOn(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client())
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		ctx, giveUp := context.WithCancel(f.Context())
		second := f.waiting(ctx, m)
		third := f.waiting(f.Context(), m)
		pass(time.Minute)
		giveUp()
		require.Error(f, f.outcome(second).err)
		pass(time.Minute)
		require.Len(f, f.queue(), 2)
		require.Empty(f, third)
		require.NoError(f, lease.Release())
		require.NoError(f, f.granted(third).Release())
	})
}

// goesAhead checks that a waiter waits for as long as a lease is held, and is granted once that is released.
func (f *fixture) goesAhead(lease *recipes.Lease, waiter <-chan result) {
	f.Helper()
	pass(time.Minute)
	require.Empty(f, waiter)
	f.stands(lease)
	require.NoError(f, lease.Release())
	require.NoError(f, f.granted(waiter).Release())
}

// A waiter whose own znode was deleted by somebody else does not take its turn, although it learns of the end of the
// hold ahead: its successor is granted.
func TestDeletedWaiterIsHandedNothing(t *testing.T) {
	for _, waited := range []time.Duration{0, time.Minute} {
		inBubble(t, func(f *fixture) {
			m := f.mutex(f.client())
			lease, err := m.Acquire(f.Context())
			require.NoError(f, err)
			second := f.waiting(f.Context(), m)
			third := f.waiting(f.Context(), f.mutex(f.client()))
			pass(waited)
			f.srv.Delete(f.queue()[1])
			require.NoError(f, lease.Release())
			f.goesAhead(f.granted(third), second)
		})
	}
}

// A waiter that learns of the end of the hold ahead before the answer to the read of its own znode takes no turn
// with a znode that is gone.
func TestHandedOnBeforeTheOwnZnodeIsKnown(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		m := f.mutex(client)
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		second, third := f.waiting(f.Context(), m), f.waiting(f.Context(), m)
		fourth := f.waiting(f.Context(), f.mutex(f.client()))
		f.srv.Delay(zktest.OpGetData, time.Second, client.Conn().SessionID())
		require.NoError(f, lease.Release())
		lease = f.granted(second)
		f.srv.Delete(f.queue()[1])
		require.NoError(f, lease.Release())
		f.goesAhead(f.granted(fourth), third)
	})
}

// A waiter that reads its own znode no more, because its successor watches it, learns of a revocation that came before
// that.
func TestRevocationThatTheSuccessorHasRead(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		m := f.mutex(client)
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		second, third := f.waiting(f.Context(), m), f.waiting(f.Context(), m)
		_, err = client.Conn().Set(f.queue()[2], []byte("__REVOKE__"), -1)
		require.NoError(f, err)
		fourth := f.waiting(f.Context(), m)
		for _, next := range []<-chan result{second, third} {
			require.NoError(f, lease.Release())
			lease = f.granted(next)
		}
		pass(moment)
		require.True(f, isRevoked(lease))
		require.NoError(f, lease.Release())
		require.NoError(f, f.granted(fourth).Release())
	})
}

// before runs fn before the server executes an operation of a client for the first time.
func (f *fixture) before(op zktest.Op, client *recipes.Client, fn func()) {
	var once sync.Once
	session := client.Conn().SessionID()
	remove := f.srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == op && r.Session == session {
			once.Do(fn)
		}
		return zktest.Fault{}
	})
	f.Cleanup(remove)
}

// A waiter behind a hold of another session is granted without another look at the queue, if nobody else is ahead:
// by the event, or because it asks for the watch when the hold has gone.
func TestTurnBehindTheOnlyOneAhead(t *testing.T) {
	for _, isTooLate := range []bool{false, true} {
		inBubble(t, func(f *fixture) {
			client := f.client()
			lease, err := f.mutex(f.client()).Acquire(f.Context())
			require.NoError(f, err)
			if isTooLate {
				f.before(zktest.OpGetData, client, func() { f.srv.Delete(lease.Path()) })
			}
			requests := f.srv.Observe()
			acquired := acquiring(f.Context(), f.mutex(client))
			if !isTooLate {
				synctest.Wait()
				require.Empty(f, acquired)
				require.NoError(f, lease.Release())
			}
			next := f.granted(acquired)
			require.Equal(f, 1, countLists(requests), "behind the create")
			require.Equal(f, 2, requests.Count(zktest.OpGetData), "the znode ahead, and the own one")
			f.stands(next)
			require.NoError(f, next.Release())
		})
	}
}

// One that asks for the watch when the hold has gone, and whose own znode has gone before that, takes no turn: its
// successor is granted.
func TestTurnOfADeletedWaiterBehindTheOnlyOneAhead(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		lease, err := f.mutex(f.client()).Acquire(f.Context())
		require.NoError(f, err)
		successor := make(chan (<-chan result), 1)
		f.before(zktest.OpGetData, client, func() {
			own := f.queue()[1]
			successor <- f.waiting(f.Context(), f.mutex(f.client()))
			f.srv.Delete(own)
			f.srv.Delete(lease.Path())
		})
		second := acquiring(f.Context(), f.mutex(client))
		f.goesAhead(f.granted(<-successor), second)
	})
}

// One that finds its neighbour gone when it asks for the watch takes no turn while somebody ahead of that holds the lock.
func TestTurnOfOneWhoseNeighbourGivesUp(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		lease, err := f.mutex(f.client()).Acquire(f.Context())
		require.NoError(f, err)
		second := f.waiting(f.Context(), f.mutex(f.client()))
		f.before(zktest.OpGetData, client, func() { f.srv.Delete(f.queue()[1]) })
		third := acquiring(f.Context(), f.mutex(client))
		f.goesAhead(lease, third)
		require.NoError(f, f.granted(second).Release()) // it has joined again
	})
}
