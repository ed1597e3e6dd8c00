package session_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The predecessor was deleted while the waiter was disconnected for longer than its trust. The session is alive, and
// the event arrives, but the session has to be proven before the grant.
func TestNoGrantWithoutProof(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		const timeout, answer = 30 * time.Second, 2 * time.Second
		holder, waiter := fixture.TwoClients(t, srv, timeout)
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		turn := bubble.Start(t.Context(), fixture.MutexOn(waiter, "/m").Acquire)
		synctest.Wait()
		place := srv.Children("/m")
		require.Len(t, place, 2)

		srv.Stop(srv.B)
		bubble.Pass(22 * time.Second)
		require.NoError(t, e.Leave())
		srv.Once(zktest.OpMulti, zktest.Fault{Delay: answer})
		healed := time.Now()
		srv.Restart(srv.B)

		got := <-turn
		require.NoError(t, got.Err)
		require.Contains(t, place, got.Lease.Path()[len("/m/"):], "the place was kept")
		proof := slices.DeleteFunc(srv.Log.Requests(zktest.OpMulti), func(r zktest.Request) bool { return r.Server != srv.B || r.Time.Before(healed) })
		require.NotEmpty(t, proof)
		require.GreaterOrEqual(t, got.At.Sub(proof[0].Time), answer, "not before the first proof is answered")
		require.LessOrEqual(t, got.Lease.TrustedUntil().Sub(proof[0].Time), 2*timeout/3+answer)
		require.NoError(t, got.Lease.Leave())
	})
}

// The same, but the proof finds the znode deleted, so the waiter joins again at the tail.
func TestNoGrantWhenTheProofFails(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, waiter := fixture.TwoClients(t, srv, 30*time.Second)
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		turn := bubble.Start(t.Context(), fixture.MutexOn(waiter, "/m").Acquire)
		fixture.Settle()
		srv.Stop(srv.B)
		bubble.Pass(22 * time.Second)
		require.NoError(t, e.Leave())
		old := "/m/" + srv.Children("/m")[0]
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpMulti && r.Path == old {
				srv.Delete(old)
			}
			return zktest.Fault{}
		})
		srv.Restart(srv.B)
		got := <-turn
		require.NoError(t, got.Err)
		require.NotEqual(t, old, got.Lease.Path())
		require.NoError(t, got.Lease.Leave())
	})
}

// A create whose answer takes longer than the trust it gives is no grant either.
func TestSlowCreateIsProvenFirst(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		const timeout = 6 * time.Second
		s := fixture.Connect(t, srv.Config(timeout))
		srv.Put("/m", nil)
		srv.Once(zktest.OpCreate2, zktest.Fault{Delay: 3900 * time.Millisecond})
		turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
		got := <-turn
		require.NoError(t, got.Err)
		require.True(t, got.At.Before(got.Lease.TrustedUntil()))
		require.Len(t, srv.Children("/m"), 1)
		require.NoError(t, got.Lease.Leave())
	})
}

// A waiter that lost its session joins again at the tail, and its context still bounds it.
func TestExpiryWhileWaiting(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, waiter := fixture.TwoClients(t, srv, 6*time.Second)
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		turn := bubble.Start(ctx, fixture.MutexOn(waiter, "/m").Acquire)
		bubble.Pass(time.Second)
		old := srv.Children("/m")
		srv.Expire(fixture.SessionID(waiter))
		bubble.Eventually(t, 5*time.Second, func() bool { return len(srv.Children("/m")) == 2 })
		require.NotSubset(t, old, srv.Children("/m"), "a new place")
		got := <-turn
		require.ErrorIs(t, got.Err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, got.At.Sub(start))
		bubble.Eventually(t, time.Second, func() bool { return len(srv.Children("/m")) == 1 })
		require.NoError(t, e.Leave())
	})
}

// Another client deletes the waiter's own znode. There are never two holders.
func TestOwnZnodeDeletedWhileWaiting(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		_, e, turn := fixture.OneBehind(t, srv)
		for _, name := range srv.Children("/m") {
			if "/m/"+name != e.Path() {
				srv.Delete("/m/" + name)
			}
		}
		bubble.Pass(time.Second)
		require.Empty(t, turn, "granted beside a holder")
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.Err)
		require.NoError(t, got.Lease.Leave())
	})
}

// The server refuses the watches of a waiter that reconnects. The client connects again, so that it also notices a
// deletion after its read.
func TestReconnectWithWatchesRefused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		_, e, turn := fixture.OneBehind(t, srv)
		srv.Once(zktest.OpSetWatches, zktest.Fault{Refusal: zktest.RefuseTimeout})
		srv.Stop(srv.B) // the waiter's
		srv.Restart(srv.B)
		bubble.Pass(4 * time.Second)
		require.NoError(t, e.Leave())
		bubble.Pass(time.Second)
		require.NotEmpty(t, turn)
		got := <-turn
		require.NoError(t, got.Err)
		require.NoError(t, got.Lease.Leave())
	})
}

// During the disconnect another client replaces our znode by one of the same name. It belongs to another session, and
// is no hold of ours.
func TestOwnZnodeReplacedWhileWaiting(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, e, turn := fixture.OneBehind(t, srv)
		queue := srv.Children("/m")
		own := "/m/" + queue[slices.IndexFunc(queue, func(name string) bool { return "/m/"+name != e.Path() })]
		srv.Stop(srv.B) // the waiter's
		srv.Delete(own)
		_, err := holder.Conn().Create(own, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		srv.Restart(srv.B)
		bubble.Pass(2 * time.Second)
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.Err)
		require.NotEqual(t, own, got.Lease.Path(), "granted by another's znode")
		require.NoError(t, got.Lease.Leave())
	})
}

// The server is slow to set the watch on the predecessor. Meanwhile our own znode is deleted, without a watch to
// report that. An event of the predecessor is no turn without another listing.
func TestOwnZnodeDeletedBeforeItIsWatched(t *testing.T) {
	const slow = 50 * time.Millisecond
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, waiter := fixture.TwoClients(t, srv, 6*time.Second)
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		srv.Once(zktest.OpGetData, zktest.Fault{Delay: slow})
		turn := bubble.Start(t.Context(), fixture.MutexOn(waiter, "/m").Acquire)
		bubble.Pass(slow / 2)
		queue := srv.Children("/m")
		require.Len(t, queue, 2)
		own := "/m/" + queue[slices.IndexFunc(queue, func(name string) bool { return "/m/"+name != e.Path() })]
		srv.Delete(own)
		bubble.Pass(slow/2 + time.Millisecond)
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.Err)
		require.NotEqual(t, own, got.Lease.Path(), "granted by a znode that is gone")
		require.NoError(t, got.Lease.Leave())
	})
}

// The predecessor's znode and our own are deleted in the same instant. In either order of the events, we are not
// granted without a znode.
func TestOwnZnodeDeletedWithThePredecessor(t *testing.T) {
	for _, ownFirst := range []bool{true, false} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			holder, e, turn := fixture.OneBehind(t, srv)
			fixture.Settle()
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
			require.NoError(t, got.Err)
			if got.Lease.Path() == own { // granted in the instant between: it must end
				_, cause := bubble.Ended(t, got.Lease)
				require.False(t, ownFirst)
				require.ErrorIs(t, cause, zkutil.ErrNodeDeleted)
				require.Equal(t, got.At, time.Now())
				return
			}
			require.NoError(t, got.Lease.Leave())
		})
	}
}
