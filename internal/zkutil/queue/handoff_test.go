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

// Waiters of one session hand the lock on without reading the queue, after short and long waits, and none is granted
// before the deletion of the znode ahead.
func TestWaitersOfOneSessionHandOnWithoutAList(t *testing.T) {
	for _, waited := range []time.Duration{0, time.Minute} {
		locks.Run(t, func(f *locks.Fixture) {
			const waiters = 10
			m := f.Mutex(f.Client())
			lease, err := m.Acquire(f.Context())
			require.NoError(f, err)
			var waiting []<-chan bubble.Outcome[*recipes.Lease]
			for range waiters {
				waiting = append(waiting, f.Waiting(f.Context(), m))
			}
			bubble.Pass(waited)
			requests := f.Srv.Observe()
			for _, next := range waiting {
				bubble.Pass(time.Millisecond)
				before := lease.FencingToken()
				require.NoError(f, lease.Release())
				lease = bubble.Granted(f, next)
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

// The last waiter of a session has no successor that watches its znode. It reads the znode once the blocker is a hold of the session, so that
// the end of that hold costs no read.
func TestLastWaiterReadsItsZnodeBeforeItsTurn(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		first := bubble.Acquire(f.T, m.Acquire)
		second, last := f.Waiting(f.Context(), m), f.Waiting(f.Context(), m)
		require.NoError(f, first.Release())
		blocker := bubble.Granted(f, second)
		bubble.Pass(bubble.Moment)
		requests := f.Srv.Observe()
		defer requests.Stop()
		require.NoError(f, blocker.Release())
		lease := bubble.Granted(f, last)
		require.Zero(f, requests.Count(zktest.OpGetData))
		require.Zero(f, countLists(requests))
		require.NoError(f, lease.Release())
	})
}

// A waiter that gives up hands nothing on: contenders ahead of it are still queued.
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
		require.Error(f, bubble.Receive(f, second).Err)
		bubble.Pass(time.Minute)
		require.Len(f, f.Contenders(), 2)
		require.Empty(f, third)
		require.NoError(f, lease.Release())
		require.NoError(f, bubble.Granted(f, third).Release())
	})
}

// requireAhead requires that a waiter waits as long as a lease is held, and is granted after its release.
func requireAhead(f *locks.Fixture, lease *recipes.Lease, waiter <-chan bubble.Outcome[*recipes.Lease]) {
	f.Helper()
	bubble.Pass(time.Minute)
	require.Empty(f, waiter)
	f.Stands(lease)
	require.NoError(f, lease.Release())
	require.NoError(f, bubble.Granted(f, waiter).Release())
}

// A waiter whose own znode was deleted by another client does not take its turn, although it learns of the end of the
// hold ahead. Its successor is granted.
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
			requireAhead(f, bubble.Granted(f, third), second)
		})
	}
}

// A waiter that learns of the end of the hold ahead before the answer to the read of its own znode takes no turn with
// a deleted znode.
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
		lease = bubble.Granted(f, second)
		f.Srv.Delete(f.Contenders()[1])
		require.NoError(f, lease.Release())
		requireAhead(f, bubble.Granted(f, fourth), third)
	})
}

// A waiter that no longer reads its own znode, because its successor watches it, learns of an earlier revocation.
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
		for _, next := range []<-chan bubble.Outcome[*recipes.Lease]{second, third} {
			require.NoError(f, lease.Release())
			lease = bubble.Granted(f, next)
		}
		bubble.Pass(bubble.Moment)
		require.True(f, locks.IsRevoked(lease))
		require.NoError(f, lease.Release())
		require.NoError(f, bubble.Granted(f, fourth).Release())
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

// A waiter behind a hold of another session is granted without reading the queue again, if no other contender is
// ahead. It learns of the end by the event, or because it requests the watch after the deletion.
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
			acquired := bubble.Start(f.Context(), f.Mutex(client).Acquire)
			if !isTooLate {
				synctest.Wait()
				require.Empty(f, acquired)
				require.NoError(f, lease.Release())
			}
			next := bubble.Granted(f, acquired)
			require.Equal(f, 1, countLists(requests), "behind the create")
			require.Equal(f, 2, requests.Count(zktest.OpGetData), "the znode ahead, and the own one")
			f.Stands(next)
			require.NoError(f, next.Release())
		})
	}
}

// A waiter that requests the watch after the end of the hold, and whose own znode was deleted before that, takes no
// turn. Its successor is granted.
func TestTurnOfADeletedWaiterBehindTheOnlyOneAhead(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		lease, err := f.Mutex(f.Client()).Acquire(f.Context())
		require.NoError(f, err)
		successor := make(chan (<-chan bubble.Outcome[*recipes.Lease]), 1)
		runBefore(f, zktest.OpGetData, client, func() {
			own := f.Contenders()[1]
			successor <- f.Waiting(f.Context(), f.Mutex(f.Client()))
			f.Srv.Delete(own)
			f.Srv.Delete(lease.Path())
		})
		second := bubble.Start(f.Context(), f.Mutex(client).Acquire)
		requireAhead(f, bubble.Granted(f, <-successor), second)
	})
}

// A waiter that finds its neighbour deleted when it requests the watch takes no turn while a contender ahead of that
// holds the lock.
func TestTurnOfOneWhoseNeighbourGivesUp(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		lease, err := f.Mutex(f.Client()).Acquire(f.Context())
		require.NoError(f, err)
		second := f.Waiting(f.Context(), f.Mutex(f.Client()))
		runBefore(f, zktest.OpGetData, client, func() { f.Srv.Delete(f.Contenders()[1]) })
		third := bubble.Start(f.Context(), f.Mutex(client).Acquire)
		requireAhead(f, lease, third)
		require.NoError(f, bubble.Granted(f, second).Release()) // it joined again
	})
}
