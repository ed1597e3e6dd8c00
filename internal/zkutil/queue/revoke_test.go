package queue_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

func TestRevocationOfAHolder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, peer := fixture.Connect(t, srv.Config(30*time.Second)), fixture.Connect(t, srv.Config(30*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		called := 0
		e.OnRevoked(s.Callbacks(), func() { called++ })
		for range 3 { // repeating it changes nothing
			require.NoError(t, queue.Revoke(t.Context(), peer, e.Path()))
			bubble.Pass(toldWithin)
			require.True(t, bubble.IsClosed(e.Revoked()))
		}
		require.NoError(t, e.Context().Err(), "it is still held")
		require.NoError(t, e.Leave())
		require.NoError(t, s.Close())
		require.Equal(t, 1, called)
	})
}

// Of several holds in quick succession, each current one is checked in time, but not those that ended in between.
func TestRevocationOfYoungHolders(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, peer := fixture.Connect(t, srv.Config(30*time.Second)), fixture.Connect(t, srv.Config(30*time.Second))
		var held []*session.Entry
		for _, path := range []string{"/a", "/b", "/c", "/d"} {
			held = append(held, bubble.Acquire(t, fixture.MutexOn(s, path).Acquire))
			bubble.Pass(session.WatchOwnAfter * 2 / 3)
		}
		require.NoError(t, held[1].Leave())
		for _, e := range slices.Delete(held, 1, 2) {
			require.NoError(t, queue.Revoke(t.Context(), peer, e.Path()))
			bubble.Pass(toldWithin)
			require.True(t, bubble.IsClosed(e.Revoked()), e.Path())
			require.NoError(t, e.Leave())
		}
	})
}

// toldWithin is how soon a holder hears of a revocation on a quick line, also of one from before the grant.
const toldWithin = 10 * time.Millisecond

// Curator misses this one. The waiter has a watch on its znode, or none yet.
func TestRevocationOfAWaiterIsSeenWhenItIsGranted(t *testing.T) {
	for _, waited := range []time.Duration{0, time.Minute} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(30*time.Second))
			q := fixture.MutexOn(s, "/m")
			e := bubble.Acquire(t, q.Acquire)
			turn := bubble.Start(t.Context(), q.Acquire)
			synctest.Wait()
			bubble.Pass(waited)
			for _, name := range srv.Children("/m") {
				if path := "/m/" + name; path != e.Path() {
					require.NoError(t, queue.Revoke(t.Context(), s, path))
				}
			}
			synctest.Wait()
			require.NoError(t, e.Leave())
			got := <-turn
			require.NoError(t, got.Err)
			bubble.Pass(toldWithin)
			require.True(t, bubble.IsClosed(got.Lease.Revoked()), "waited %v", waited)
			called := make(chan struct{})
			got.Lease.OnRevoked(s.Callbacks(), func() { close(called) })
			<-called
			require.NoError(t, got.Lease.Leave())
		})
	}
}

// The request arrives while the holder's connection is away.
func TestRevocationDuringAnOutage(t *testing.T) {
	for range 20 {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(30*time.Second))
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			fixture.Settle() // it has a watch
			srv.Stop(srv.A)
			synctest.Wait()
			srv.Put(e.Path(), []byte(session.Revocation))
			srv.Restart(srv.A)
			bubble.Pass(3 * time.Second)
			require.True(t, bubble.IsClosed(e.Revoked()))
			require.NoError(t, e.Leave())
		})
	}
}

func TestOtherDataIsNoRevocation(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		fixture.Settle()
		for _, data := range []string{"", "__REVOKE__ ", "__revoke__", "me"} {
			srv.Put(e.Path(), []byte(data))
			synctest.Wait()
			require.False(t, bubble.IsClosed(e.Revoked()), data)
		}
		srv.Put(e.Path(), []byte(session.Revocation)) // the watch is set again each time
		synctest.Wait()
		require.True(t, bubble.IsClosed(e.Revoked()))
		require.NoError(t, e.Leave())
	})
}

func TestRevokeOfADeletedZnodeOrNoContender(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		require.NoError(t, queue.Revoke(t.Context(), s, "/m/_c_x-lock-0000000001"), "gone")
		srv.Put("/m", []byte("precious"))
		before := len(srv.Log.Requests())
		for _, path := range []string{"/m", "/", "/m/config", "/m/lock-"} {
			require.ErrorIs(t, queue.Revoke(t.Context(), s, path), zkutil.ErrInvalidPath, path)
		}
		require.Len(t, srv.Log.Requests(), before, "nothing was written")
	})
}
