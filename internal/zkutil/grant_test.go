package zkutil

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
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

// oneBehind returns a lock of client a, and the turn of client b, who is in the queue behind it.
func oneBehind(t *testing.T, srv *ensemble) (holder *Session, e *Entry, turn <-chan granted) {
	t.Helper()
	holder, waiter := twoClients(t, srv, 6*time.Second)
	e = acquire(t, mutexOn(holder, "/m"))
	turn = acquireLater(t.Context(), mutexOn(waiter, "/m"))
	synctest.Wait()
	return holder, e, turn
}

// twoClients are a holder on server A and a waiter on server B.
func twoClients(t *testing.T, srv *ensemble, timeout time.Duration) (holder, waiter *Session) {
	t.Helper()
	return connect(t, srv.config(timeout, srv.a)), connect(t, srv.config(timeout, srv.b))
}

// The predecessor has gone while the waiter was away for longer than its trust. The
// session is alive, the event comes: but it has to be proven before the grant.
func TestNoGrantWithoutProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		const timeout, answer = 30 * time.Second, 2 * time.Second
		holder, waiter := twoClients(t, srv, timeout)
		e := acquire(t, mutexOn(holder, "/m"))
		turn := acquireLater(t.Context(), mutexOn(waiter, "/m"))
		synctest.Wait()
		place := srv.Children("/m")
		require.Len(t, place, 2)

		srv.Stop(srv.b)
		pass(22 * time.Second)
		require.NoError(t, e.Leave())
		srv.once(zktest.OpMulti, zktest.Fault{Delay: answer})
		healed := time.Now()
		srv.Restart(srv.b)

		got := <-turn
		require.NoError(t, got.err)
		require.Contains(t, place, got.entry.Path()[len("/m/"):], "the place was kept")
		proof := slices.DeleteFunc(srv.log.Requests(zktest.OpMulti), func(r zktest.Request) bool { return r.Server != srv.b || r.Time.Before(healed) })
		require.NotEmpty(t, proof)
		require.GreaterOrEqual(t, got.at.Sub(proof[0].Time), answer, "not before the first proof is answered")
		require.LessOrEqual(t, got.entry.TrustedUntil().Sub(proof[0].Time), 2*timeout/3+answer)
		require.NoError(t, got.entry.Leave())
	})
}

// The same, but the proof says that the znode is gone: a new place at the tail.
func TestNoGrantWhenTheProofFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		holder, waiter := twoClients(t, srv, 30*time.Second)
		e := acquire(t, mutexOn(holder, "/m"))
		turn := acquireLater(t.Context(), mutexOn(waiter, "/m"))
		synctest.Wait()
		srv.Stop(srv.b)
		pass(22 * time.Second)
		require.NoError(t, e.Leave())
		old := "/m/" + srv.Children("/m")[0]
		srv.onRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpMulti && r.Path == old {
				srv.Delete(old)
			}
			return zktest.Fault{}
		})
		srv.Restart(srv.b)
		got := <-turn
		require.NoError(t, got.err)
		require.NotEqual(t, old, got.entry.Path())
		require.NoError(t, got.entry.Leave())
	})
}

// A create whose answer takes longer than the trust it gives is no grant either.
func TestSlowCreateIsProvenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		const timeout = 6 * time.Second
		s := connect(t, srv.config(timeout))
		srv.Put("/m", nil)
		srv.once(zktest.OpCreate, zktest.Fault{Delay: 3900 * time.Millisecond})
		turn := acquireLater(t.Context(), mutexOn(s, "/m"))
		got := <-turn
		require.NoError(t, got.err)
		require.True(t, got.at.Before(got.entry.TrustedUntil()))
		require.Len(t, srv.Children("/m"), 1)
		require.NoError(t, got.entry.Leave())
	})
}

// A waiter that has lost its session joins again at the tail, and its context goes on
// bounding it.
func TestExpiryWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		holder, waiter := twoClients(t, srv, 6*time.Second)
		e := acquire(t, mutexOn(holder, "/m"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		turn := acquireLater(ctx, mutexOn(waiter, "/m"))
		pass(time.Second)
		old := srv.Children("/m")
		srv.Expire(sessionID(waiter))
		eventually(t, 5*time.Second, func() bool { return len(srv.Children("/m")) == 2 })
		require.NotSubset(t, old, srv.Children("/m"), "a new place")
		got := <-turn
		require.ErrorIs(t, got.err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, got.at.Sub(start))
		eventually(t, time.Second, func() bool { return len(srv.Children("/m")) == 1 })
		require.NoError(t, e.Leave())
	})
}

// The own znode deleted by someone while waiting: never two holders.
func TestOwnZnodeDeletedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		_, e, turn := oneBehind(t, srv)
		for _, name := range srv.Children("/m") {
			if "/m/"+name != e.Path() {
				srv.Delete("/m/" + name)
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

// The server does not take back the watches of a waiter that reconnects, and on an adopted
// connection nothing can be done about that: what went while it was away is seen all the same.
func TestReconnectWithoutWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		holder := connect(t, srv.config(6*time.Second, srv.b))
		waiter, _ := adopt(t, srv, 6*time.Second) // on server A
		e := acquire(t, mutexOn(holder, "/m"))
		turn := acquireLater(t.Context(), mutexOn(waiter, "/m"))
		pass(time.Second)
		srv.once(zktest.OpSetWatches, zktest.Fault{Refusal: zktest.RefuseTimeout})
		srv.Stop(srv.a)
		require.NoError(t, e.Leave())
		srv.Restart(srv.a)
		pass(2 * time.Second)
		require.NotEmpty(t, turn)
		got := <-turn
		require.NoError(t, got.err)
		require.NoError(t, got.entry.Leave())
	})
}

// On a connection of its own it tries again: what goes after it has looked is heard of, too.
func TestReconnectWithWatchesRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		_, e, turn := oneBehind(t, srv)
		srv.once(zktest.OpSetWatches, zktest.Fault{Refusal: zktest.RefuseTimeout})
		srv.Stop(srv.b) // the waiter's
		srv.Restart(srv.b)
		pass(4 * time.Second)
		require.NoError(t, e.Leave())
		pass(time.Second)
		require.NotEmpty(t, turn)
		got := <-turn
		require.NoError(t, got.err)
		require.NoError(t, got.entry.Leave())
	})
}

// While we are away somebody puts a znode in the place of ours, under its very name: it is
// another session's, and no hold of ours.
func TestOwnZnodeReplacedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		holder, e, turn := oneBehind(t, srv)
		queue := srv.Children("/m")
		own := "/m/" + queue[slices.IndexFunc(queue, func(name string) bool { return "/m/"+name != e.Path() })]
		srv.Stop(srv.b) // the waiter's
		srv.Delete(own)
		_, err := holder.Conn().Create(own, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		srv.Restart(srv.b)
		pass(2 * time.Second)
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.err)
		require.NotEqual(t, own, got.entry.Path(), "granted by another's znode")
		require.NoError(t, got.entry.Leave())
	})
}

// The predecessor's znode and our own go in the same instant: the predecessor first
// on the wire or ours, we are not granted without a znode.
func TestOwnZnodeDeletedWithThePredecessor(t *testing.T) {
	for _, ownFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			srv := newEnsemble(t)
			holder, e, turn := oneBehind(t, srv)
			var own string
			for _, name := range srv.Children("/m") {
				if path := "/m/" + name; path != e.Path() {
					own = path
				}
			}
			paths := []string{e.Path(), own}
			if ownFirst {
				slices.Reverse(paths)
			}
			_, err := holder.Conn().Multi(&zk.DeleteRequest{Path: paths[0], Version: -1}, &zk.DeleteRequest{Path: paths[1], Version: -1})
			require.NoError(t, err)
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
