package kafkakit

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const path = "/registry/locks"

// lock is the interface of kafka-kit's package cluster.
type lock interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
	UnlockLogError(ctx context.Context)
	Owner() any
}

var _ lock = (*ZooKeeperLock)(nil)

// newLock returns a lock on a session of its own, as another process has it. The owner key is that of the registry.
func newLock(b *bubble.Bubble, ttl time.Duration) *ZooKeeperLock {
	b.Helper()
	return newLockWithClient(b, b.Client(), ttl)
}

// newLockWithClient returns a lock on the session of client.
func newLockWithClient(b *bubble.Bubble, client *recipes.Client, ttl time.Duration) *ZooKeeperLock {
	b.Helper()
	lock, err := NewZooKeeperLockWithClient(ZooKeeperLockConfig{Path: path, OwnerKey: "reqID", TTL: int(ttl.Milliseconds())}, client)
	require.NoError(b, err)
	return lock
}

// as returns the context of a request by owner, which ends after timeout.
func as(b *bubble.Bubble, owner string, timeout time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), timeout)
	b.Cleanup(cancel)
	return context.WithValue(ctx, "reqID", owner) //nolint:revive,staticcheck // the key of kafka-kit is a string
}

// anonymous returns the context of a request without an owner.
func anonymous(b *bubble.Bubble, timeout time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), timeout)
	b.Cleanup(cancel)
	return ctx
}

// locking calls Lock in a goroutine, which ends with the call.
func locking(ctx context.Context, lock *ZooKeeperLock) <-chan error {
	done := make(chan error, 1)
	go func() { done <- lock.Lock(ctx) }()
	bubble.Pass(bubble.Moment)
	return done
}

// The first tests are for the properties that the tests of kafka-kit check.

// TestLock, TestLockIntegration: a free lock is acquired. A second request waits until its context ends, in the same process or in
// another one.
func TestSecondRequestTimesOut(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		lock, elsewhere := newLock(b, 0), newLock(b, 0)
		ctx := anonymous(b, time.Second)
		require.NoError(b, lock.Lock(ctx))
		require.Equal(b, ErrLockingTimedOut, lock.Lock(ctx)) // programs compare with ==
		require.Equal(b, ErrLockingTimedOut, elsewhere.Lock(anonymous(b, time.Second)))
		bubble.Pass(bubble.Moment)
		require.Len(b, b.Srv.Children(path), 1, "requests that gave up leave no znode")
	})
}

// TestLockSameOwner: a request that has the lock is told so at once, for nested handlers.
func TestSameOwner(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		lock, start := newLock(b, 0), time.Now()
		require.NoError(b, lock.Lock(as(b, "one", time.Minute)))
		require.Equal(b, ErrAlreadyOwnLock, lock.Lock(as(b, "one", time.Minute)))
		require.Less(b, time.Since(start), time.Second)
		require.Equal(b, "one", lock.Owner())
		require.Equal(b, ErrNotLockOwner, lock.Unlock(as(b, "two", time.Minute)))
		require.NoError(b, lock.Unlock(as(b, "one", time.Minute)))
		require.Nil(b, lock.Owner())
	})
}

// TestUnlock, TestUnlockIntegration: after Unlock the lock can be acquired again, in the same process or in another one.
func TestLockAfterUnlock(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		lock, elsewhere, ctx := newLock(b, 0), newLock(b, 0), anonymous(b, time.Minute)
		require.NoError(b, lock.Lock(ctx))
		require.NoError(b, lock.Unlock(ctx))
		require.NoError(b, lock.Lock(ctx))
		waiting := locking(ctx, elsewhere)
		require.Empty(b, waiting)
		lock.UnlockLogError(ctx)
		require.NoError(b, <-waiting)
		elsewhere.UnlockLogError(ctx)
		require.Empty(b, b.Srv.Children(path))
	})
}

// TestExpireLockAhead, TestLockTTLIntegration: a contender gets the lock of a holder that did not unlock within the TTL. The holder's
// object is empty afterwards, and its znode is deleted.
func TestTTL(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		lock, elsewhere := newLock(b, time.Second), newLock(b, time.Second)
		require.NoError(b, lock.Lock(as(b, "one", time.Minute)))
		require.Equal(b, "one", lock.Owner())
		require.Len(b, b.Srv.Children(path), 1)
		bubble.Pass(time.Second)
		require.NoError(b, elsewhere.Lock(as(b, "two", 5*time.Second)))
		require.Equal(b, "two", elsewhere.Owner())
		require.Len(b, b.Srv.Children(path), 1)
		require.NoError(b, elsewhere.Unlock(as(b, "two", time.Second)))
		require.NoError(b, lock.Lock(as(b, "three", 5*time.Second)))
		require.Equal(b, "three", lock.Owner())
	})
}

// TestIDs, TestFirst, TestLockPath, TestLockAhead, TestIdFromZnode: the queue is ordered by the numbers of the znodes, and znodes
// without a number are ignored.
func TestQueueIsOrderedByNumber(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		b.Srv.Put(path+"/_c_979cb11f40bb3dbc6908edeaac8f2de1-lo", nil)
		first, ctx := newLock(b, 0), anonymous(b, time.Minute)
		require.NoError(b, first.Lock(ctx))
		var locks []*ZooKeeperLock
		var waiting []<-chan error
		for range 3 {
			lock := newLock(b, 0)
			locks, waiting = append(locks, lock), append(waiting, locking(ctx, lock))
		}
		for i := range locks {
			for _, w := range waiting[i:] {
				require.Empty(b, w)
			}
			first.UnlockLogError(ctx)
			require.NoError(b, <-waiting[i])
			first = locks[i]
			bubble.Pass(time.Second)
		}
	})
}

// The next tests are for three defects of the original.

// In the original the TTL counts from the queueing, so a request that waited has less time left, or none.
func TestTTLCountsFromTheGrant(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const ttl = 10 * time.Second
		one, two, three := newLock(b, ttl), newLock(b, ttl), newLock(b, ttl)
		require.NoError(b, one.Lock(as(b, "one", time.Minute)))
		second := locking(as(b, "two", time.Minute), two)
		bubble.Pass(9 * time.Second)
		require.NoError(b, one.Unlock(as(b, "one", time.Minute)))
		require.NoError(b, <-second)
		granted := time.Now()
		bubble.Pass(2 * time.Second) // 11 s after two queued
		require.NoError(b, three.Lock(as(b, "three", time.Minute)))
		require.GreaterOrEqual(b, time.Since(granted), ttl)
		require.Nil(b, two.Owner())
	})
}

// In the original a contender deletes the znode of a waiter ahead that has waited for longer than its TTL.
func TestWaiterOutlivesItsTTL(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		one, two, three := newLock(b, time.Minute), newLock(b, time.Second), newLock(b, time.Second)
		ctx := anonymous(b, time.Minute)
		require.NoError(b, one.Lock(ctx))
		second := locking(ctx, two)
		bubble.Pass(2 * time.Second)
		third := locking(ctx, three)
		require.NoError(b, one.Unlock(ctx))
		bubble.Pass(bubble.Moment)
		require.Empty(b, third)
		require.NoError(b, <-second)
		require.NoError(b, <-third) // after the TTL of two
	})
}

// In the original one field has the znode of any caller: a request that timed out, or one that is too late, unlocks the lock of another.
func TestUnlockOfAnotherCaller(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		lock := newLock(b, 10*time.Second)
		slow, next, hasty := anonymous(b, time.Minute), anonymous(b, time.Minute), anonymous(b, time.Second)
		require.NoError(b, lock.Lock(slow))
		require.Equal(b, ErrLockingTimedOut, lock.Lock(hasty))
		bubble.Pass(bubble.Moment)                            // the znode of hasty is deleted in the background
		require.Equal(b, ErrNotLockOwner, lock.Unlock(hasty)) // deferred, as the tests of kafka-kit do it
		require.Len(b, b.Srv.Children(path), 1, "slow has the lock")
		require.NoError(b, lock.Lock(next)) // after the TTL of slow
		require.Equal(b, ErrNotLockOwner, lock.Unlock(slow))
		require.Len(b, b.Srv.Children(path), 1, "next has the lock")
		require.NoError(b, lock.Unlock(next))
		require.Empty(b, b.Srv.Children(path))
	})
}

// In the original a holder whose session expired is not told, and works beside the next one.
func TestExpiryEndsTheHoldFirst(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		lock, elsewhere := newLockWithClient(b, client, 0), newLock(b, 0)
		ctx := as(b, "one", time.Minute)
		require.NoError(b, lock.Lock(ctx))
		b.Srv.Partition(client.Conn().SessionID())
		require.NoError(b, elsewhere.Lock(as(b, "two", time.Minute)))
		require.Nil(b, lock.Owner(), "two holders")
		requireClosed(b, lock.Lost(ctx))
		require.Equal(b, ErrNotLockOwner, lock.Unlock(ctx))
		b.Srv.HealSessions()
		require.NoError(b, elsewhere.Unlock(as(b, "two", time.Minute)))
		require.NoError(b, lock.Lock(ctx), "the object can be used again")
	})
}

// The last tests are for what a program needs when it changes over.

// The TTL ends the work of its holder before another caller gets the lock. A contender that waits needs no TTL.
func TestTTLEndsTheWork(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		lock, elsewhere := newLock(b, 10*time.Second), newLock(b, 0)
		ctx := as(b, "one", time.Second)
		require.NoError(b, lock.Lock(ctx))
		lost := lock.Lost(ctx)
		waiting := locking(as(b, "two", time.Minute), elsewhere)
		bubble.Pass(9 * time.Second)
		require.Empty(b, waiting)
		select {
		case <-lost:
			require.FailNow(b, "the lock is held")
		default:
		}
		require.NoError(b, <-waiting)
		requireClosed(b, lost)
	})
}

// A handler unlocks with the context of its request, which may be over.
func TestUnlockAfterTheRequest(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		lock, ctx := newLock(b, time.Minute), as(b, "one", time.Second)
		require.NoError(b, lock.Lock(ctx))
		<-ctx.Done()
		require.NoError(b, lock.Unlock(ctx))
		requireClosed(b, lock.Lost(ctx))
		require.Empty(b, b.Srv.Children(path))
	})
}

// Old programs parse the data of the znode ahead, and delete the znode after the deadline in it.
func TestDataForOldPrograms(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		require.NoError(b, newLock(b, time.Second).Lock(as(b, "one", time.Minute)))
		data, _, _ := b.Srv.Get(b.Queue(path)[0])
		var metadata struct {
			Timestamp   time.Time
			TTLDeadline time.Time `json:"ttl_deadline"`
			OwnerID     string    `json:"owner_id"`
		}
		require.NoError(b, json.Unmarshal(data, &metadata))
		require.WithinDuration(b, time.Now(), metadata.Timestamp, time.Second)
		require.Greater(b, time.Until(metadata.TTLDeadline), 24*time.Hour)
		require.Equal(b, "one", metadata.OwnerID)
	})
}

func requireClosed(b *bubble.Bubble, c <-chan struct{}) {
	b.Helper()
	select {
	case <-c:
	default:
		require.FailNow(b, "not closed")
	}
}
