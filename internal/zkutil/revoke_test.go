package zkutil

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestRevocationOfAHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s, peer := connect(t, srv.config(30*time.Second)), connect(t, srv.config(30*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		called := 0
		e.OnRevoked(s.Callbacks(), func() { called++ })
		for range 3 { // repeating it changes nothing
			require.NoError(t, peer.Revoke(t.Context(), e.Path()))
			synctest.Wait()
			require.True(t, isClosed(e.Revoked()))
		}
		require.NoError(t, e.Context().Err(), "it is still held")
		require.NoError(t, e.Leave())
		require.NoError(t, s.Close())
		require.Equal(t, 1, called)
	})
}

// Curator misses this one.
func TestRevocationOfAWaiterIsSeenWhenItIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		q := mutexOn(s, "/m")
		e := acquire(t, q)
		turn := acquireLater(t.Context(), q)
		synctest.Wait()
		for _, name := range srv.Children("/m") {
			if path := "/m/" + name; path != e.Path() {
				require.NoError(t, s.Revoke(t.Context(), path))
			}
		}
		synctest.Wait()
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.err)
		require.True(t, isClosed(got.entry.Revoked()))
		called := make(chan struct{})
		got.entry.OnRevoked(s.Callbacks(), func() { close(called) })
		<-called
		require.NoError(t, got.entry.Leave())
	})
}

// The request arrives while the holder's connection is away.
func TestRevocationDuringAnOutage(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			srv := newEnsemble(t)
			s := connect(t, srv.config(30*time.Second))
			e := acquire(t, mutexOn(s, "/m"))
			srv.Stop(srv.a)
			synctest.Wait()
			srv.Put(e.Path(), []byte(Revocation))
			srv.Restart(srv.a)
			pass(3 * time.Second)
			require.True(t, isClosed(e.Revoked()))
			require.NoError(t, e.Leave())
		})
	}
}

func TestOtherDataIsNoRevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		for _, data := range []string{"", "__REVOKE__ ", "__revoke__", "me"} {
			srv.Put(e.Path(), []byte(data))
			synctest.Wait()
			require.False(t, isClosed(e.Revoked()), data)
		}
		srv.Put(e.Path(), []byte(Revocation)) // the watch has been set again each time
		synctest.Wait()
		require.True(t, isClosed(e.Revoked()))
		require.NoError(t, e.Leave())
	})
}

func TestRevokeOfWhatIsGoneOrNoContender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		require.NoError(t, s.Revoke(t.Context(), "/m/_c_x-lock-0000000001"), "gone")
		srv.Put("/m", []byte("precious"))
		before := len(srv.log.Requests())
		for _, path := range []string{"/m", "/", "/m/config", "/m/lock-"} {
			require.ErrorIs(t, s.Revoke(t.Context(), path), ErrInvalidPath, path)
		}
		require.Len(t, srv.log.Requests(), before, "nothing was written")
	})
}

func TestHoldEndsWithItsZnode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		q := mutexOn(s, "/m")
		e := acquire(t, q)
		start := time.Now()
		srv.Delete(e.Path())
		at, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrNodeDeleted)
		require.Equal(t, start, at)
		require.ErrorIs(t, e.Leave(), ErrNodeDeleted)
		require.NoError(t, acquire(t, q).Leave())
	})
}
