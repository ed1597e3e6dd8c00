package multilock_test

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// creates are the operations by which a lock creates its znode without a transaction.
var creates = []zktest.Op{zktest.OpCreate, zktest.OpCreate2}

// Free locks of every kind that has one queue are created by one transaction, and deleted by another. Their tokens are equal, and are the
// czxids of their znodes.
func TestOneTransaction(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		m, err := multilock.New(mutexOn(b, client, all[0]), rwlockOn(b, client, all[1]).ReadLock(), rwlockOn(b, client, all[2]).WriteLock())
		require.NoError(b, err)
		for _, acquire := range []func(context.Context) (*multilock.Lease, error){m.Acquire, m.TryAcquire, m.Acquire} {
			log := b.Srv.Observe()
			lease := bubble.Acquire(b, acquire)
			b.Stands(lease)
			for _, part := range lease.Leases() {
				_, stat, ok := b.Srv.Get(part.Path())
				require.True(b, ok)
				require.Equal(b, stat.Czxid, part.FencingToken())
				require.Equal(b, lease.Leases()[0].FencingToken(), part.FencingToken())
			}
			b.Release(lease)
			require.Empty(b, held(b))
			require.Zero(b, log.Count(append(creates, zktest.OpDelete)...))
		}
	})
}

// While a multilock waits for a lock, others can have those behind it. Then one transaction creates the rest.
func TestNothingBehindTheLockThatIsWaitedFor(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		other, m := b.Client(), mutexes(b, b.Client())
		b.Release(bubble.Acquire(b, m.Acquire)) // makes the directories
		second := bubble.Acquire(b, mutexOn(b, other, all[1]).Acquire)
		log := b.Srv.Observe()
		done := bubble.Waiting(b, b.Context(), m.Acquire)
		require.Equal(b, all[:2], held(b))
		third := bubble.Acquire(b, mutexOn(b, other, all[2]).TryAcquire)
		b.Release(second)
		bubble.Pass(time.Second)
		require.Len(b, b.Queue(all[2]), 2, "it waits for the third now")
		b.Release(third)
		b.Release(bubble.Granted(b, done))
		require.Equal(b, 2, log.Count(creates...), "that of the other client, and one for the third alone")
		require.Empty(b, held(b))
	})
}

// A failed try has deleted all its znodes, those behind the held lock too.
func TestTryLeavesNothing(t *testing.T) {
	for held := range all {
		bubble.Run(t, func(b *bubble.Bubble) {
			m, other := mutexes(b, b.Client()), b.Client()
			taken := bubble.Acquire(b, mutexOn(b, other, all[held]).Acquire)
			_, err := m.TryAcquire(b.Context())
			require.ErrorIs(b, err, recipes.ErrNotAcquired)
			for i, dir := range all {
				if i != held {
					require.Empty(b, b.Queue(dir))
				}
			}
			require.Len(b, b.Queue(all[held]), 1)
			b.Release(taken)
		})
	}
}

// isTransaction reports whether a request creates the znodes of a multilock.
func isTransaction(r zktest.Request) bool {
	return r.Op == zktest.OpMulti && path.Base(r.Path) != "" && r.Path[len(r.Path)-1] == '-'
}

// Whatever happens to the transaction, the locks are acquired, and no znode of the transaction stays behind another.
func TestFaultsOfTheTransaction(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"lost request": {Lost: zktest.RequestLost}, "lost answer": {Lost: zktest.ReplyLost}, "no answer": {Lost: zktest.NoAnswer},
		"refused": {Refusal: zktest.RefuseNoAuth},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Troubled()
				m, isFirst := mutexes(b, client), true
				b.Release(bubble.Acquire(b, m.Acquire))
				b.Srv.Inject(func(r zktest.Request) zktest.Fault {
					if isFirst && isTransaction(r) {
						isFirst = false
						return fault
					}
					return zktest.Fault{}
				})
				lease := bubble.Acquire(b, m.Acquire)
				require.False(b, isFirst)
				bubble.Pass(2 * client.SessionTimeout())
				for i, dir := range all {
					require.Equal(b, []string{lease.Leases()[i].Path()}, b.Queue(dir))
				}
				b.Release(lease)
				requireEmptyBudget(b, client)
			})
		})
	}
}

// A lock that the servers refuse is named by the error, and nothing is left.
func TestRefusedPart(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		m := mutexes(b, client)
		b.Release(bubble.Acquire(b, m.Acquire))
		_, err := client.Conn().SetACL(all[1], zk.WorldACL(zk.PermRead), -1)
		require.NoError(b, err)
		_, err = m.Acquire(b.Context())
		require.ErrorIs(b, err, zk.ErrNoAuth)
		require.ErrorContains(b, err, "lock 2 of 3: mutex: acquire /locks/b: ")
		require.Empty(b, held(b))
		requireEmptyBudget(b, client)
	})
}

// A transaction that its caller has given up is undone.
func TestAbandonedTransaction(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		m := mutexes(b, client)
		b.Release(bubble.Acquire(b, m.Acquire))
		b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if isTransaction(r) {
				return zktest.Fault{Delay: 2 * time.Second}
			}
			return zktest.Fault{}
		})
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		_, err := m.Acquire(ctx)
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.NotEmpty(b, held(b), "the transaction is executed")
		bubble.Pass(5 * time.Second)
		require.Empty(b, held(b))
		requireEmptyBudget(b, client)
	})
}

// If a znode is gone already, the others are deleted all the same.
func TestReleaseWithAPartGone(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		m := mutexes(b, b.Client())
		lease := bubble.Acquire(b, m.Acquire)
		b.Srv.Delete(lease.Leases()[1].Path())
		_ = lease.Release() // the loss, if its event was faster
		require.Empty(b, held(b))
	})
}

// These go one after the other: a lock that is given twice, a lock that the context holds already, a cohort, locks of two clients, and servers
// on which nobody has tried the transaction.
func TestOneAfterTheOther(t *testing.T) {
	check := func(b *bubble.Bubble, ctx context.Context, m *multilock.InterProcessMultiLock) {
		log := b.Srv.Observe()
		lease, err := m.Acquire(ctx)
		require.NoError(b, err)
		require.Positive(b, log.Count(creates...))
		require.Zero(b, transactions(log))
		b.Release(lease)
	}
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		first, second := mutexOn(b, client, all[0]), mutexOn(b, client, all[1])
		again, err := multilock.New(first, second, mutexOn(b, client, all[0]))
		require.NoError(b, err)
		check(b, b.Context(), again)
		outer := bubble.Acquire(b, second.Acquire)
		check(b, outer.Context(), mutexes(b, client))
		b.Release(outer)
		cohort, err := mutex.New(client, all[1], mutex.WithCohort(mutex.Cohort{}))
		require.NoError(b, err)
		mixed, err := multilock.New(first, cohort)
		require.NoError(b, err)
		check(b, b.Context(), mixed)
		two, err := multilock.New(first, mutexOn(b, b.Client(), all[1]))
		require.NoError(b, err)
		check(b, b.Context(), two)
	})
	bubble.Run(t, func(b *bubble.Bubble) {
		check(b, b.Context(), mutexes(b, b.Client()))
	}, zktest.WithDialect(zktest.ClickHouseKeeper))
}

// A lock that no New has made says so.
func TestZeroValueAsAPart(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		for _, zero := range []multilock.Locker{&mutex.InterProcessMutex{}, &rwlock.Lock{}} {
			m, err := multilock.New(mutexOn(b, b.Client(), all[0]), zero)
			require.NoError(b, err)
			_, err = m.Acquire(b.Context())
			require.ErrorIs(b, err, recipes.ErrInvalidArgument)
			require.Empty(b, b.Queue(all[0]))
		}
	})
}

// The first use of a read-write lock still finds another kind of lock on its path.
func TestOtherLayoutOfAPart(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		b.Srv.Put(all[1]+"/_c_00000000-0000-0000-0000-000000000000-lock-0000000000", nil)
		m, err := multilock.New(mutexOn(b, client, all[0]), rwlockOn(b, client, all[1]).WriteLock())
		require.NoError(b, err)
		_, err = m.Acquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrOtherLayout)
		require.Empty(b, b.Queue(all[0]))
	})
}

// The hooks and the error count the time of the transaction as part of the wait.
func TestWaitHasTheTransaction(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		var waited []time.Duration
		m := mutexes(b, b.Troubled(recipes.WithTrace(&recipes.Trace{
			AcquireEnd: func(_ context.Context, e recipes.AcquireEnd) { waited = append(waited, e.Waited) },
		})))
		b.Release(bubble.Acquire(b, m.Acquire))
		waited = nil
		b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if isTransaction(r) {
				return zktest.Fault{Delay: time.Second}
			}
			return zktest.Fault{}
		})
		b.Release(bubble.Acquire(b, m.Acquire))
		require.Equal(b, []time.Duration{time.Second, 0, 0}, waited)
		ctx, cancel := context.WithTimeout(b.Context(), time.Second/2)
		defer cancel()
		_, err := m.Acquire(ctx)
		var wait *recipes.WaitError
		require.ErrorAs(b, err, &wait)
		require.Equal(b, time.Second/2, wait.Waited)
		bubble.Pass(5 * time.Second)
		require.Empty(b, held(b))
	})
}
