package queue_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
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
		locks.Run(t, func(f *locks.Fixture) {
			const waiters = 10
			m := f.Mutex(f.Client())
			lease, err := m.Acquire(f.Context())
			require.NoError(f, err)
			var waiting []<-chan locks.Result
			for range waiters {
				waiting = append(waiting, f.Waiting(f.Context(), m))
			}
			bubble.Pass(waited)
			requests := f.Srv.Observe()
			for _, next := range waiting {
				bubble.Pass(time.Millisecond)
				before := lease.FencingToken()
				require.NoError(f, lease.Release())
				lease = f.Granted(next)
				require.Greater(f, lease.FencingToken(), before)
				require.Equal(f, lease.Path(), f.Contenders()[0])
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
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		ctx, giveUp := context.WithCancel(f.Context())
		second := f.Waiting(ctx, m)
		third := f.Waiting(f.Context(), m)
		bubble.Pass(time.Minute)
		giveUp()
		require.Error(f, f.Outcome(second).Err)
		bubble.Pass(time.Minute)
		require.Len(f, f.Contenders(), 2)
		require.Empty(f, third)
		require.NoError(f, lease.Release())
		require.NoError(f, f.Granted(third).Release())
	})
}

// requireAhead checks that a waiter waits for as long as a lease is held, and is granted once that is released.
func requireAhead(f *locks.Fixture, lease *recipes.Lease, waiter <-chan locks.Result) {
	f.Helper()
	bubble.Pass(time.Minute)
	require.Empty(f, waiter)
	f.Stands(lease)
	require.NoError(f, lease.Release())
	require.NoError(f, f.Granted(waiter).Release())
}

// A waiter whose own znode was deleted by somebody else does not take its turn, although it learns of the end of the
// hold ahead: its successor is granted.
func TestDeletedWaiterIsHandedNothing(t *testing.T) {
	for _, waited := range []time.Duration{0, time.Minute} {
		locks.Run(t, func(f *locks.Fixture) {
			m := f.Mutex(f.Client())
			lease, err := m.Acquire(f.Context())
			require.NoError(f, err)
			second := f.Waiting(f.Context(), m)
			third := f.Waiting(f.Context(), f.Mutex(f.Client()))
			bubble.Pass(waited)
			f.Srv.Delete(f.Contenders()[1])
			require.NoError(f, lease.Release())
			requireAhead(f, f.Granted(third), second)
		})
	}
}

// A waiter that learns of the end of the hold ahead before the answer to the read of its own znode takes no turn
// with a znode that is gone.
func TestHandedOnBeforeTheOwnZnodeIsKnown(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		m := f.Mutex(client)
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		second, third := f.Waiting(f.Context(), m), f.Waiting(f.Context(), m)
		fourth := f.Waiting(f.Context(), f.Mutex(f.Client()))
		f.Srv.Delay(zktest.OpGetData, time.Second, client.Conn().SessionID())
		require.NoError(f, lease.Release())
		lease = f.Granted(second)
		f.Srv.Delete(f.Contenders()[1])
		require.NoError(f, lease.Release())
		requireAhead(f, f.Granted(fourth), third)
	})
}

// A waiter that reads its own znode no more, because its successor watches it, learns of a revocation that came before
// that.
func TestRevocationThatTheSuccessorHasRead(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		m := f.Mutex(client)
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		second, third := f.Waiting(f.Context(), m), f.Waiting(f.Context(), m)
		_, err = client.Conn().Set(f.Contenders()[2], []byte("__REVOKE__"), -1)
		require.NoError(f, err)
		fourth := f.Waiting(f.Context(), m)
		for _, next := range []<-chan locks.Result{second, third} {
			require.NoError(f, lease.Release())
			lease = f.Granted(next)
		}
		bubble.Pass(bubble.Moment)
		require.True(f, locks.IsRevoked(lease))
		require.NoError(f, lease.Release())
		require.NoError(f, f.Granted(fourth).Release())
	})
}

// runBefore runs fn before the server executes an operation of a client for the first time.
func runBefore(f *locks.Fixture, op zktest.Op, client *recipes.Client, fn func()) {
	var once sync.Once
	session := client.Conn().SessionID()
	remove := f.Srv.Inject(func(r zktest.Request) zktest.Fault {
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
		locks.Run(t, func(f *locks.Fixture) {
			client := f.Client()
			lease, err := f.Mutex(f.Client()).Acquire(f.Context())
			require.NoError(f, err)
			if isTooLate {
				runBefore(f, zktest.OpGetData, client, func() { f.Srv.Delete(lease.Path()) })
			}
			requests := f.Srv.Observe()
			acquired := locks.Acquiring(f.Context(), f.Mutex(client))
			if !isTooLate {
				synctest.Wait()
				require.Empty(f, acquired)
				require.NoError(f, lease.Release())
			}
			next := f.Granted(acquired)
			require.Equal(f, 1, countLists(requests), "behind the create")
			require.Equal(f, 2, requests.Count(zktest.OpGetData), "the znode ahead, and the own one")
			f.Stands(next)
			require.NoError(f, next.Release())
		})
	}
}

// One that asks for the watch when the hold has gone, and whose own znode has gone before that, takes no turn: its
// successor is granted.
func TestTurnOfADeletedWaiterBehindTheOnlyOneAhead(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		lease, err := f.Mutex(f.Client()).Acquire(f.Context())
		require.NoError(f, err)
		successor := make(chan (<-chan locks.Result), 1)
		runBefore(f, zktest.OpGetData, client, func() {
			own := f.Contenders()[1]
			successor <- f.Waiting(f.Context(), f.Mutex(f.Client()))
			f.Srv.Delete(own)
			f.Srv.Delete(lease.Path())
		})
		second := locks.Acquiring(f.Context(), f.Mutex(client))
		requireAhead(f, f.Granted(<-successor), second)
	})
}

// One that finds its neighbour gone when it asks for the watch takes no turn while somebody ahead of that holds the lock.
func TestTurnOfOneWhoseNeighbourGivesUp(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		lease, err := f.Mutex(f.Client()).Acquire(f.Context())
		require.NoError(f, err)
		second := f.Waiting(f.Context(), f.Mutex(f.Client()))
		runBefore(f, zktest.OpGetData, client, func() { f.Srv.Delete(f.Contenders()[1]) })
		third := locks.Acquiring(f.Context(), f.Mutex(client))
		requireAhead(f, lease, third)
		require.NoError(f, f.Granted(second).Release()) // it has joined again
	})
}
