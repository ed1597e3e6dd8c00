package zktest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestSetSessionTimeouts(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		c := w.session(srv)
		srv.SetSessionTimeouts(20*time.Second, time.Minute, srv.Addr())
		n, _ := srv.Session(c.id)
		require.Equal(w, 10*time.Second, n.Timeout, "until the next handshake")
		c = c.again(w.dial(srv, srv.Addrs()[1]))
		require.Equal(w, 10*time.Second, c.timeout, "the other server has its own bounds")
		c = c.again(w.dial(srv))
		require.Equal(w, 20*time.Second, c.timeout)
		srv.SetSessionTimeouts(time.Second, 2*time.Second)
		require.Equal(w, 2*time.Second, c.again(w.dial(srv, srv.Addrs()[1])).timeout)
		require.Panics(w, func() { srv.SetSessionTimeouts(2*time.Second, time.Second) })
	})
}

// The handshake sets the session's end, even to an earlier time.
func TestLoweredTimeoutEndsASessionEarlier(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.SetSessionTimeouts(time.Second, 2*time.Second)
		c.hail(10 * time.Second)
		c = c.again(w.dial(srv))
		expires(w, srv, c, began.Add(2050*time.Millisecond))
	})
}

func TestElectLeader(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		a, b := w.session(srv), w.session(srv, srv.Addrs()[1])
		a.did(create("/a", 1))
		srv.ElectLeader()
		a.end()
		b.end()
		a = a.again(w.dial(srv))
		require.EqualValues(w, 2<<32, a.did(ping()).zxid)
		require.EqualValues(w, 2<<32+1, a.did(create("/b", 0)).zxid)
		require.Equal(w, b.id, b.again(w.dial(srv)).id)
		require.Equal(w, []string{"a", "b", "zookeeper"}, srv.Children("/"))
		srv.Stop()
		require.Panics(w, srv.ElectLeader)
	})
}

// Only the leader knows the timeouts negotiated since a session's creation.
func TestNewLeaderRestoresTheTimeoutOfCreation(t *testing.T) {
	leaders := map[string]func(w world, srv *zktest.Server){
		"elected": func(_ world, srv *zktest.Server) { srv.ElectLeader() },
		"restarted": func(w world, srv *zktest.Server) {
			srv.Stop()
			require.NoError(w, srv.Restart())
		},
	}
	for name, lead := range leaders {
		for _, later := range []time.Duration{4 * time.Second, 40 * time.Second} {
			t.Run(name+" "+later.String(), func(t *testing.T) {
				bubble(t, func(w world) {
					srv := zktest.NewServer(w)
					c := w.session(srv)
					srv.SetSessionTimeouts(later, later)
					c = c.again(w.dial(srv))
					require.Equal(w, later, c.timeout)
					pass(3 * time.Second)
					lead(w, srv)
					expires(w, srv, c, began.Add(13050*time.Millisecond))
				})
			})
		}
	}
}

func TestIsolatedServerNoticesNoElection(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		c := w.session(srv)
		srv.Isolate(srv.Addr())
		srv.ElectLeader()
		require.EqualValues(w, 1, c.did(ping()).zxid>>32)
		srv.Heal()
		c.end()
		require.EqualValues(w, 2, c.again(w.dial(srv)).did(ping()).zxid>>32)
	})
}
