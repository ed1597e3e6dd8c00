package mutex_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
			granted := f.granted(third)
			pass(time.Minute)
			require.Empty(f, second) // it has joined again, at the tail
			f.stands(granted)
			require.NoError(f, granted.Release())
			require.NoError(f, f.granted(second).Release())
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
		lease = f.granted(fourth)
		pass(time.Minute)
		require.Empty(f, third)
		f.stands(lease)
		require.NoError(f, lease.Release())
		require.NoError(f, f.granted(third).Release())
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
		select {
		case <-lease.Revoked():
		default:
			require.Fail(f, "not revoked")
		}
		require.NoError(f, lease.Release())
		require.NoError(f, f.granted(fourth).Release())
	})
}
