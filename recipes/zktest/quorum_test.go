package zktest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestServersServeOnlyWithAMajority(t *testing.T) {
	for _, size := range []struct{ servers, stopped int }{{2, 1}, {3, 2}, {4, 2}, {5, 3}} {
		t.Run(fmt.Sprintf("%d of %d stopped", size.stopped, size.servers), func(t *testing.T) {
			everywhere(t, func(w world) {
				srv := zktest.NewServer(w, zktest.WithServers(size.servers))
				last := srv.Addrs()[size.servers-1]
				c := w.session(srv, last)
				c.did(create("/a", 1))
				for _, address := range srv.Addrs()[1:size.stopped] {
					srv.Stop(address)
				}
				c.did(exists("/a", false))
				srv.Stop(srv.Addr())
				c.end()
				require.Zero(w, srv.Connections())
				refused := newRaw(w, w.dial(srv, last)) // the port is open
				refused.hail(10 * time.Second)
				refused.end()
				require.Panics(w, srv.ElectLeader)
				require.NoError(w, srv.Restart(srv.Addr()))
				c = c.again(w.dial(srv, last))
				require.EqualValues(w, 2<<32, c.did(ping()).zxid, "a new leader")
				c.did(exists("/a", false))
			})
		})
	}
}

func TestSessionsDoNotAgeWithoutQuorum(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3), zktest.WithTouchInterval(time.Second))
		c := w.session(srv, srv.Addrs()[2])
		until(began.Add(9 * time.Second))
		srv.Stop(srv.Addrs()[:2]...)
		until(began.Add(time.Hour))
		require.NoError(w, srv.Restart(srv.Addrs()[1]))
		expires(w, srv, c, began.Add(time.Hour+10050*time.Millisecond))
	})
}

// A handshake sent before the loss of the quorum that arrives after it is refused, too.
func TestHandshakeThatArrivesAfterTheLossOfTheQuorum(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3))
		srv.Freeze(srv.Addr())
		c := newRaw(w, w.dial(srv))
		c.hail(10 * time.Second)
		srv.Stop(srv.Addrs()[1:]...)
		srv.Heal()
		c.end()
	})
}

func TestFrozenAndIsolatedServersCountAsRunning(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3))
		c := w.session(srv)
		srv.Freeze(srv.Addrs()[1])
		srv.Isolate(srv.Addrs()[2])
		c.did(create("/a", 0))
		srv.Stop(srv.Addrs()[1])
		c.did(create("/b", 0))
	})
}

// A holder of a lock loses its lease when the quorum is lost, and no client connects. The error is that of a client of a
// real ensemble, whose server hangs up.
func TestLeaseEndsWithTheQuorum(t *testing.T) {
	const timeout = 12 * time.Second
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(5))
		lock, err := mutex.New(zkclient.Connect(w, srv, recipes.WithSessionTimeout(timeout)), "/lock")
		require.NoError(w, err)
		lease, err := lock.Acquire(w.Context())
		require.NoError(w, err)
		srv.Stop(srv.Addrs()[2:]...)
		<-lease.Context().Done()
		require.ErrorIs(w, context.Cause(lease.Context()), recipes.ErrSessionLost)
		require.LessOrEqual(w, since(began), timeout)
		require.NotNil(w, srv.Children("/lock"))

		_, err = recipes.Connect(w.Context(), srv.Addrs()[:1], recipes.WithDialer(srv.Dialer()), recipes.WithConnectTimeout(3*time.Second))
		require.ErrorContains(w, err, "EOF (hung up without an answer: no quorum,")
		require.NoError(w, srv.Restart())
		lease, err = lock.Acquire(w.Context())
		require.NoError(w, err)
		require.NoError(w, lease.Release())
	})
}
