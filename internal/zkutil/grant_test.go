package zkutil

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// granted is the outcome of an Acquire in the background.
type granted struct {
	entry *Entry
	err   error
	at    time.Time
}

func acquireLater(ctx context.Context, q *Queue) <-chan granted {
	result := make(chan granted, 1)
	go func() {
		e, err := q.Acquire(ctx)
		result <- granted{e, err, time.Now()}
	}()
	return result
}

// twoClients are a holder on server A and a waiter on server B.
func twoClients(t *testing.T, f *fake, timeout time.Duration) (holder, waiter *Session) {
	t.Helper()
	a, b := f.config(timeout), f.config(timeout)
	a.Servers, b.Servers = []string{serverA}, []string{serverB}
	return connect(t, a), connect(t, b)
}

// The predecessor has gone while the waiter was away for longer than its trust. The
// session is alive, the event comes: but it has to be proven before the grant.
func TestNoGrantWithoutProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA, serverB)
		const timeout, answer = 30 * time.Second, 2 * time.Second
		holder, waiter := twoClients(t, f, timeout)
		e := acquire(t, mutexOn(holder, "/m"))
		turn := acquireLater(t.Context(), mutexOn(waiter, "/m"))
		synctest.Wait()
		place := f.children("/m")
		require.Len(t, place, 2)

		f.set(refusing, serverB)
		f.mu.Lock()
		f.dropLocked(serverB)
		f.mu.Unlock()
		pass(22 * time.Second)
		require.NoError(t, e.Leave())
		f.once(opMulti, fault{delay: answer})
		healed := time.Now()
		f.set(healthy, serverB)

		got := <-turn
		require.NoError(t, got.err)
		require.Contains(t, place, got.entry.Path()[len("/m/"):], "the place was kept")
		proof := slices.DeleteFunc(f.requests(opMulti), func(r seen) bool { return r.server != serverB || r.at.Before(healed) })
		require.NotEmpty(t, proof)
		require.GreaterOrEqual(t, got.at.Sub(proof[0].at), answer, "not before the first proof is answered")
		require.LessOrEqual(t, got.entry.TrustedUntil().Sub(proof[0].at), 2*timeout/3+answer)
		require.NoError(t, got.entry.Leave())
	})
}

// The same, but the proof says that the znode is gone: a new place at the tail.
func TestNoGrantWhenTheProofFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA, serverB)
		holder, waiter := twoClients(t, f, 30*time.Second)
		e := acquire(t, mutexOn(holder, "/m"))
		turn := acquireLater(t.Context(), mutexOn(waiter, "/m"))
		synctest.Wait()
		f.set(refusing, serverB)
		f.mu.Lock()
		f.dropLocked(serverB)
		f.mu.Unlock()
		pass(22 * time.Second)
		require.NoError(t, e.Leave())
		old := "/m/" + f.children("/m")[0]
		f.onRequest(func(r seen) fault {
			if r.op == opMulti && r.path == old {
				f.removeLocked(old)
			}
			return fault{}
		})
		f.set(healthy, serverB)
		got := <-turn
		require.NoError(t, got.err)
		require.NotEqual(t, old, got.entry.Path())
		require.NoError(t, got.entry.Leave())
	})
}

// A create whose answer takes longer than the trust it gives is no grant either.
func TestSlowCreateIsProvenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		const timeout = 6 * time.Second
		s := connect(t, f.config(timeout))
		f.put("/m", "")
		f.once(opCreate, fault{delay: 3900 * time.Millisecond})
		turn := acquireLater(t.Context(), mutexOn(s, "/m"))
		got := <-turn
		require.NoError(t, got.err)
		require.True(t, got.at.Before(got.entry.TrustedUntil()))
		require.Len(t, f.children("/m"), 1)
		require.NoError(t, got.entry.Leave())
	})
}

// A waiter that has lost its session joins again at the tail, and its context goes on
// bounding it.
func TestExpiryWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA, serverB)
		holder, waiter := twoClients(t, f, 6*time.Second)
		e := acquire(t, mutexOn(holder, "/m"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		turn := acquireLater(ctx, mutexOn(waiter, "/m"))
		pass(time.Second)
		old := f.children("/m")
		f.expire(sessionID(waiter))
		eventually(t, 5*time.Second, func() bool { return len(f.children("/m")) == 2 })
		require.NotSubset(t, old, f.children("/m"), "a new place")
		got := <-turn
		require.ErrorIs(t, got.err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, got.at.Sub(start))
		eventually(t, time.Second, func() bool { return len(f.children("/m")) == 1 })
		require.NoError(t, e.Leave())
	})
}

// The own znode deleted by someone while waiting: never two holders.
func TestOwnZnodeDeletedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA, serverB)
		holder, waiter := twoClients(t, f, 6*time.Second)
		e := acquire(t, mutexOn(holder, "/m"))
		turn := acquireLater(t.Context(), mutexOn(waiter, "/m"))
		synctest.Wait()
		for _, name := range f.children("/m") {
			if "/m/"+name != e.Path() {
				f.remove("/m/" + name)
			}
		}
		pass(time.Second)
		require.Empty(t, turn, "granted beside a holder")
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.err)
		require.NoError(t, got.entry.Leave())
	})
}

// The predecessor's znode and our own go in the same instant: the predecessor first
// on the wire or ours, we are not granted without a znode.
func TestOwnZnodeDeletedWithThePredecessor(t *testing.T) {
	for _, ownFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, serverA, serverB)
			holder, waiter := twoClients(t, f, 6*time.Second)
			e := acquire(t, mutexOn(holder, "/m"))
			turn := acquireLater(t.Context(), mutexOn(waiter, "/m"))
			synctest.Wait()
			var own string
			for _, name := range f.children("/m") {
				if path := "/m/" + name; path != e.Path() {
					own = path
				}
			}
			f.mu.Lock()
			if ownFirst {
				f.removeLocked(own)
				f.removeLocked(e.Path())
			} else {
				f.removeLocked(e.Path())
				f.removeLocked(own)
			}
			f.mu.Unlock()
			got := <-turn
			require.NoError(t, got.err)
			if got.entry.Path() == own { // granted in the instant between: it must end
				_, cause := ended(t, got.entry)
				require.False(t, ownFirst)
				require.ErrorIs(t, cause, ErrNodeDeleted)
				require.Equal(t, got.at, time.Now())
				return
			}
			require.NoError(t, got.entry.Leave())
		})
	}
}
