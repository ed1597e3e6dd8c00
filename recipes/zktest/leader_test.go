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

// A server that a session left reports the session once more, with the timeout that this server granted.
func TestReportOfTheServerBefore(t *testing.T) {
	ends := map[string]struct {
		then func(srv *zktest.Server, left string)
		want time.Duration
	}{
		"served":   {func(*zktest.Server, string) {}, 6 * time.Second},
		"stopped":  {func(srv *zktest.Server, left string) { srv.Stop(left) }, 11 * time.Second},
		"isolated": {func(srv *zktest.Server, left string) { srv.Isolate(left) }, 11 * time.Second},
	}
	for name, test := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w world) {
				srv := zktest.NewServer(w, zktest.WithServers(3), zktest.WithTouchInterval(time.Second))
				srv.SetSessionTimeouts(time.Second, 5*time.Second, srv.Addrs()[1])
				c := w.session(srv)
				pass(300 * time.Millisecond)
				c = c.again(w.dial(srv, srv.Addrs()[1]))
				c.did(ping())
				c.timeout = 10 * time.Second
				c = c.again(w.dial(srv))
				c.did(ping())
				test.then(srv, srv.Addrs()[1])
				pass(time.Second)
				n, _ := srv.Session(c.id)
				require.Equal(w, 10*time.Second, n.Timeout)
				expires(w, srv, c, began.Add(test.want+50*time.Millisecond))
			})
		})
	}
}

// Session timeouts, ticks and reports go by the servers' clock, and delays by the clients'.
func TestClockRate(t *testing.T) {
	for rate, want := range map[float64]time.Duration{0.5: 22 * time.Second, 1.25: 8800 * time.Millisecond} {
		bubble(t, func(w world) {
			srv := zktest.NewServer(w, zktest.WithTouchInterval(time.Second), zktest.WithTickTime(time.Millisecond), zktest.WithClockRate(rate))
			c := w.session(srv)
			pass(300 * time.Millisecond)
			c.did(ping())
			srv.SlowCommits(400 * time.Millisecond)
			start := time.Now()
			c.did(create("/a", 0))
			require.Equal(w, 400*time.Millisecond, time.Since(start))
			pass(1500 * time.Millisecond) // until after the report
			expires(w, srv, c, began.Add(want+time.Duration(float64(time.Millisecond)/rate)))
		})
	}
}
