package zktest_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func since(start time.Time) time.Duration { return time.Since(start) }

func TestSlowCommits(t *testing.T) {
	writes := map[string]request{
		"create": create("/w", 0), "delete": remove("/a"), "set": set("/a", "new"), "container": container("/w"),
		"multi": multi(part(check("/a"))), "sync": syncing("/"), "close": closing(), "refused": create("/a", 0),
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w world) {
				srv := zktest.NewServer(w)
				c, other := w.session(srv), w.session(srv)
				c.did(create("/a", 0))
				before := srv.Children("/")
				srv.SlowCommits(time.Second)
				c.send(get("/a", false), write)
				require.EqualValues(w, proto.CodeOK, c.read().code)
				require.Zero(w, since(began), "reads are not slow")
				until(began.Add(time.Second - 1))
				require.Equal(w, before, srv.Children("/"), "not committed yet")
				other.did(get("/a", false))
				require.EqualValues(w, 3, c.read().xid)
				require.Equal(w, time.Second, since(began))
				srv.SlowCommits(0)
				other.call(create("/b", 0))
				require.Equal(w, time.Second, since(began))
			})
		})
	}
}

func TestSlowCommitsOverlap(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.SlowCommits(time.Second)
		c.send(create("/a", 0), create("/b", 0))
		pass(300 * time.Millisecond)
		c.send(ping(), create("/c", 0), get("/c", false))
		const late = 1300 * time.Millisecond
		for _, want := range []struct {
			xid int32
			at  time.Duration
		}{{1, time.Second}, {2, time.Second}, {proto.XidPing, time.Second}, {3, late}, {4, late}} {
			answer := c.read()
			require.Equal(w, want.xid, answer.xid)
			require.EqualValues(w, proto.CodeOK, answer.code)
			require.Equal(w, want.at, since(began))
		}
	})
}

// Events caused by other clients are sent at once.
func TestSlowCommitsHoldNoEvent(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.did(list("/", true))
		srv.SlowCommits(time.Second)
		c.send(create("/a", 0))
		pass(time.Millisecond)
		srv.Put("/b", nil)
		kind, path := c.event()
		require.Equal(w, "ChildrenChanged /", kind+" "+path)
		require.Equal(w, time.Millisecond, since(began))
		require.EqualValues(w, proto.CodeOK, c.read().code)
	})
}

func TestSlowCommitsAndHandshakes(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.SlowCommits(time.Second)
		c = c.again(w.dial(srv))
		require.NotZero(w, c.id)
		require.Zero(w, since(began), "no transaction")
		w.session(srv)
		require.Equal(w, time.Second, since(began))
	})
}

// A write that arrived is committed even if its connection ends.
func TestSlowCommitOutlivesItsConnection(t *testing.T) {
	ends := map[string]func(w world, srv *zktest.Server, c *raw){
		"hung up":        func(w world, _ *zktest.Server, c *raw) { require.NoError(w, c.conn.Close()) },
		"disconnected":   func(_ world, srv *zktest.Server, c *raw) { srv.Disconnect(c.id) },
		"server stopped": func(_ world, srv *zktest.Server, _ *raw) { srv.Stop(srv.Addr()) },
		"session moved":  func(world, *zktest.Server, *raw) {},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w world) {
				srv := zktest.NewServer(w, zktest.WithServers(3))
				c := w.session(srv)
				log := srv.Observe()
				srv.SlowCommits(time.Second)
				c.send(create("/a", 1), get("/a", false), create("/b", 0))
				pass(time.Millisecond)
				end(w, srv, c)
				next := c.again(w.dial(srv, srv.Addrs()[1]))
				require.EqualValues(w, proto.CodeNoNode, next.call(exists("/a", false)).code)
				pass(time.Second)
				next.did(exists("/a", false))
				require.Equal(w, 2, log.Count(zktest.OpCreate))
				n, _ := srv.Session(c.id)
				require.Equal(w, []string{"/a"}, n.Ephemerals)
				require.Equal(w, srv.Addrs()[1], n.Server)
			})
		})
	}
}

func TestSlowCommitsAreLostWithTheirSessionOrLeader(t *testing.T) {
	ends := map[string]func(w world, srv *zktest.Server, c *raw){
		"session expired": func(_ world, srv *zktest.Server, c *raw) { srv.Expire(c.id) },
		"another leader":  func(_ world, srv *zktest.Server, _ *raw) { srv.ElectLeader() },
		"all stopped":     func(_ world, srv *zktest.Server, _ *raw) { srv.Stop() },
		"quorum lost":     func(_ world, srv *zktest.Server, _ *raw) { srv.Stop(srv.Addrs()[1:]...) },
		"quorum lost and restored": func(w world, srv *zktest.Server, _ *raw) {
			srv.Stop(srv.Addrs()[1:]...)
			require.NoError(w, srv.Restart())
		},
		"all restarted": func(w world, srv *zktest.Server, _ *raw) {
			srv.Stop()
			require.NoError(w, srv.Restart())
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w world) {
				srv := zktest.NewServer(w, zktest.WithServers(3))
				c := w.session(srv)
				srv.SlowCommits(time.Second)
				c.send(create("/a", 1))
				pass(time.Millisecond)
				end(w, srv, c)
				pass(2 * time.Second)
				require.Equal(w, []string{"zookeeper"}, srv.Children("/"))
			})
		})
	}
}

// Time in a silence does not count, because the write did not reach the server yet.
func TestSlowCommitBehindASilence(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.SlowCommits(time.Second)
		srv.Partition(c.id)
		c.send(create("/a", 0), create("/b", 0))
		pass(3 * time.Second)
		srv.Heal()
		require.EqualValues(w, 1, c.read().xid)
		require.EqualValues(w, 2, c.read().xid)
		require.Equal(w, 4*time.Second, since(began))
	})
}

// Writes that are due at one instant are committed in the order in which the session sent them, even after the end of their
// connection.
func TestSlowCommitsKeepTheOrderOfASession(t *testing.T) {
	moves := map[string]func(w world, srv *zktest.Server, c *raw, writes []request){
		"on one connection that ends": func(w world, srv *zktest.Server, c *raw, writes []request) {
			srv.Partition(c.id)
			c.send(writes...)
			require.NoError(w, c.conn.Close())
			srv.Heal()
			pass(time.Millisecond)
			c.again(w.dial(srv, srv.Addrs()[1])) // which ends the other one for the server
		},
		"on two connections": func(w world, srv *zktest.Server, c *raw, writes []request) {
			srv.Partition(c.id)
			c.send(writes[:7]...)
			next := newRaw(w, w.dial(srv, srv.Addrs()[1]))
			next.id, next.password, next.seen, next.xid = c.id, c.password, c.seen, c.xid
			next.hail(c.timeout)
			next.send(writes[7:]...)
			pass(time.Millisecond)
			srv.Heal()
		},
		"while commits become quick": func(w world, srv *zktest.Server, c *raw, writes []request) {
			c.send(writes[:7]...)
			pass(time.Millisecond)
			next := c.again(w.dial(srv, srv.Addrs()[1]))
			srv.SlowCommits(0)
			next.send(writes[7:]...)
		},
	}
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w world) {
				srv := zktest.NewServer(w, zktest.WithServers(3))
				c := w.session(srv)
				srv.SlowCommits(time.Second)
				var writes []request
				for range 10 {
					writes = append(writes, create("/a", 0), set("/a", "x"), remove("/a"))
				}
				writes = append(writes, create("/b", 0))
				log := srv.Observe()
				move(w, srv, c, writes)
				pass(2 * time.Second)
				var want []int32
				for _, r := range writes {
					want = append(want, r.op)
				}
				var got []int32
				for _, r := range log.Requests(zktest.OpCreate, zktest.OpSetData, zktest.OpDelete) {
					got = append(got, int32(r.Op))
				}
				require.Equal(w, want, got)
				require.Equal(w, []string{"b", "zookeeper"}, srv.Children("/"))
				require.EqualValues(w, 1<<32+32, c.again(w.dial(srv)).did(ping()).zxid)
			})
		})
	}
}

func TestSlowCloseOnAnEarlierConnection(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.SlowCommits(time.Second)
		c.send(create("/a", 0), closing())
		pass(time.Millisecond)
		next := c.again(w.dial(srv))
		srv.SlowCommits(0)
		next.send(create("/b", 0), create("/c", 0))
		next.end()
		require.Equal(w, []string{"a", "zookeeper"}, srv.Children("/"))
		require.Empty(w, srv.Sessions())
	})
}

func TestSlowHandshakes(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		known := w.session(srv)
		srv.SlowHandshakes(3 * time.Second)
		conn := w.dial(srv)
		require.Zero(w, since(began), "accepted at once")
		pass(time.Second)
		c := session(w, conn, 10*time.Second)
		require.Equal(w, 4*time.Second, since(began))
		n, _ := srv.Session(c.id)
		require.Equal(w, began.Add(11050*time.Millisecond), n.Expiry.UTC(), "counted from the arrival")
		known = known.again(w.dial(srv))
		require.Equal(w, 7*time.Second, since(began))
		known.did(get("/", false))
		require.Equal(w, 7*time.Second, since(began))
		srv.SlowHandshakes(0)
		w.session(srv)
		require.Equal(w, 7*time.Second, since(began))
	})
}

func TestBandwidth(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c, other := w.session(srv), w.session(srv)
		srv.Put("/big", bytes.Repeat([]byte("x"), 9908)) // an answer of 10,000 bytes
		srv.SetBandwidth(1000, c.id)
		other.did(get("/big", false))
		require.Zero(w, since(began))
		c.send(get("/big", false))
		for i := range 1000 {
			_, err := io.ReadFull(c.conn, make([]byte, 10))
			require.NoError(w, err)
			require.Equal(w, time.Duration(i+1)*10*time.Millisecond, since(began))
		}
		c.hearsNothing()
		start := time.Now()
		srv.SetBandwidth(0)
		c.did(get("/big", false))
		require.Zero(w, since(start))
		srv.SetBandwidth(5)
		c.did(ping()) // 20 bytes
		require.Equal(w, 4*time.Second, since(start))
		require.Panics(w, func() { srv.SetBandwidth(-1) })
	})
}

func TestBandwidthOfAConnectionThatEnds(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.SetBandwidth(100)
		c.send(get("/zookeeper/config", false))
		_, err := io.ReadFull(c.conn, make([]byte, 4))
		require.NoError(w, err)
		srv.Disconnect(c.id)
		testkit.Eventually(w, func() bool { return srv.Connections() == 0 }, "the connection's end")
	})
}
