package multilock_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// transactions counts the transactions of a log that create znodes.
func transactions(log *zktest.Log) (n int) {
	for _, r := range log.Requests(zktest.OpMulti) {
		if isTransaction(r) {
			n++
		}
	}
	return n
}

// After its turn in one queue, a multilock creates the rest by a second transaction.
func TestSecondTransaction(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		m, other := mutexes(b, b.Client()), mutexOn(b, b.Client(), all[0])
		b.Release(bubble.Acquire(b, m.Acquire)) // makes the directories
		taken := bubble.Acquire(b, other.Acquire)
		log := b.Srv.Observe()
		done := bubble.Waiting(b, b.Context(), m.Acquire)
		require.Equal(b, all[:1], held(b))
		b.Release(taken)
		b.Release(bubble.Granted(b, done))
		require.Equal(b, 2, transactions(log))
		require.Zero(b, log.Count(creates...))
	})
}

// Between the transaction and the grant of a later lock, the lists become old: a user's function runs. If that lock turns out to be another's
// by then, the multilock waits, and keeps nothing behind it.
func TestLockLostBeforeItsGrant(t *testing.T) {
	for name, lose := range map[string]func(b *bubble.Bubble, own string){
		"its znode is deleted": func(b *bubble.Bubble, own string) { b.Srv.Delete(own) },
		"another is ahead":     func(*bubble.Bubble, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				between := func() {}
				client := b.Client(recipes.WithTrace(&recipes.Trace{AcquireEnd: func(_ context.Context, e recipes.AcquireEnd) {
					if e.Path == all[0] {
						between()
					}
				}}))
				m, ahead := mutexes(b, client), all[1]+"/lock-0000000003"
				b.Release(bubble.Acquire(b, m.Acquire))
				b.Srv.SetSequence(all[1], 5)
				between = func() {
					require.Equal(b, all, held(b))
					bubble.Pause(time.Second)
					lose(b, b.Queue(all[1])[0])
					b.Srv.Put(ahead, nil)
				}
				done := bubble.Start(b.Context(), m.Acquire)
				bubble.Pass(2 * time.Second)
				require.Empty(b, done, "two holders")
				require.Equal(b, all[:2], held(b))
				require.Equal(b, ahead, b.Queue(all[1])[0])
				b.Srv.Delete(ahead)
				b.Release(bubble.Granted(b, done))
				require.Empty(b, held(b))
			})
		})
	}
}

// A failed try returns after its znodes behind the held lock are deleted, even if the servers refused their deletion at first.
func TestTryWaitsForItsDeletions(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		m, other := mutexes(b, b.Troubled()), b.Client()
		b.Release(bubble.Acquire(b, m.Acquire))
		taken := bubble.Acquire(b, mutexOn(b, other, all[0]).Acquire)
		startedAt := time.Now()
		b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			isDelete := r.Op == zktest.OpDelete || r.Op == zktest.OpMulti && !isTransaction(r)
			if isDelete && !strings.HasPrefix(r.Path, all[0]+"/") && time.Since(startedAt) < time.Second {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		_, err := m.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		require.Equal(b, all[:1], held(b))
		require.GreaterOrEqual(b, time.Since(startedAt), time.Second)
		b.Release(taken)
	})
}

// An exhausted queue fails the multilock, which leaves nothing in the other queues.
func TestExhaustedPart(t *testing.T) {
	for _, dir := range all {
		bubble.Run(t, func(b *bubble.Bubble) {
			client := b.Client()
			m := mutexes(b, client)
			b.Release(bubble.Acquire(b, m.Acquire))
			for _, acquire := range []func(context.Context) (*multilock.Lease, error){m.Acquire, m.TryAcquire} {
				b.Srv.SetSequence(dir, math.MaxInt32)
				_, err := acquire(b.Context())
				require.ErrorIs(b, err, recipes.ErrSequenceExhausted)
				bubble.Pass(time.Second)
				require.Empty(b, held(b))
				requireEmptyBudget(b, client)
			}
		})
	}
}

// bytesOf is what the znodes of a multilock on paths take from the budget of their session.
func bytesOf(paths ...string) (n int) {
	for _, path := range paths {
		n += len(path+"/_c_01234567-89ab-4def-8123-456789abcdef-lock-0123456789") + 4
	}
	return n
}

// The budget of a session has room for all locks, or the multilock fails and names the lock without room. Earlier multilocks that failed or waited
// take no room.
func TestMultilockInAFullSession(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		m := mutexes(b, b.Client(recipes.WithMaxSessionBytes(bytesOf(all...))))
		other := b.Client()
		for range 3 {
			for _, dir := range all { // makes the directories, too
				taken := bubble.Acquire(b, mutexOn(b, other, dir).Acquire)
				_, err := m.TryAcquire(b.Context())
				require.ErrorIs(b, err, recipes.ErrNotAcquired)
				b.Release(taken)
			}
		}
		log := b.Srv.Observe()
		b.Release(bubble.Acquire(b, m.Acquire))
		require.Equal(b, 1, transactions(log))
		require.Zero(b, log.Count(creates...))

		short := mutexes(b, b.Client(recipes.WithMaxSessionBytes(bytesOf(all...)-1)))
		_, err := short.Acquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrSessionFull)
		require.ErrorContains(b, err, "lock 3 of 3: ")
		require.Empty(b, held(b))
	})
}

// A multilock that has to wait for room in its session takes its locks one after the other.
func TestMultilockWaitsForRoom(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client(recipes.WithMaxSessionBytes(bytesOf(all[:2]...)))
		m, err := multilock.NewMutexes(client, all[:2])
		require.NoError(b, err)
		b.Release(bubble.Acquire(b, m.Acquire))
		taken := bubble.Acquire(b, mutexOn(b, client, all[1]).Acquire)
		log := b.Srv.Observe()
		done := bubble.Waiting(b, b.Context(), m.Acquire)
		require.Zero(b, transactions(log))
		require.Equal(b, []string{taken.Path()}, b.Queue(all[1]))
		b.Release(taken)
		b.Release(bubble.Granted(b, done))
		require.Empty(b, held(b))
	})
}
