package zktest_test

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// cuts silence a client, and only that client if possible.
var cuts = map[string]func(srv *zktest.Server, c *raw){
	"partition of one": func(srv *zktest.Server, c *raw) { srv.Partition(c.id) },
	"partition":        func(srv *zktest.Server, _ *raw) { srv.Partition() },
	"freeze":           func(srv *zktest.Server, _ *raw) { srv.Freeze(srv.Addr()) },
}

// silently runs a test for each of the cuts, everywhere.
func silently(t *testing.T, test func(w world, cut func(*zktest.Server, *raw))) {
	t.Helper()
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w world) { test(w, cut) })
		})
	}
}

func TestSilenceIsNoReset(t *testing.T) {
	silently(t, func(w world, cut func(*zktest.Server, *raw)) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		cut(srv, c)
		c.send(ping(), create("/a", 0), get("/a", false))
		c.hearsNothing()
		require.Equal(w, []string{"zookeeper"}, srv.Children("/"))
		srv.Heal()
		require.EqualValues(w, proto.XidPing, c.read().xid)
		require.EqualValues(w, 1, c.read().xid)
		require.EqualValues(w, 2, c.read().xid)
	})
}

func TestRequestsSentIntoSilenceArriveAfterHeal(t *testing.T) {
	silently(t, func(w world, cut func(*zktest.Server, *raw)) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		cut(srv, c)
		c.send(create("/a", 0), create("/b", 0))
		require.NoError(w, c.conn.Close())
		srv.Heal()
		testkit.Eventually(w, func() bool { return srv.Connections() == 0 }, "the connection's end")
		require.Equal(w, []string{"a", "b", "zookeeper"}, srv.Children("/"))
	})
}

// The first answer fails before the server reads all requests.
func TestRequestsArriveAfterAFailedAnswer(t *testing.T) {
	const requests = 50
	for range 100 {
		bubble(t, func(w world) {
			srv := zktest.NewServer(w)
			c := w.session(srv)
			var all []request
			for i := range requests {
				all = append(all, create(fmt.Sprintf("/%d", i), 0))
			}
			srv.Partition()
			c.send(all...)
			require.NoError(w, c.conn.Close())
			srv.Heal()
			testkit.Eventually(w, func() bool { return srv.Connections() == 0 }, "the connection's end")
			require.Len(w, srv.Children("/"), requests+1)
		})
	}
}

// An event is also waiting for the client, which is no longer reading.
func TestRequestsArriveEvenIfAnswersCannot(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.did(list("/", true))
		srv.Partition()
		srv.Put("/event", nil)
		c.send(create("/a", 0), create("/b", 0))
		require.NoError(w, c.conn.Close())
		srv.Inject(func(zktest.Request) zktest.Fault {
			time.Sleep(time.Second) //nolint:forbidigo // virtual time: a slow rule
			return zktest.Fault{}
		})
		srv.Heal()
		testkit.Eventually(w, func() bool { return srv.Connections() == 0 }, "the connection's end")
		require.Equal(w, []string{"a", "b", "event", "zookeeper"}, srv.Children("/"))
	})
}

// When both connections of a session resume, the old connection still precedes the new one.
func TestEarlierRequestsArriveBeforeTheReconnect(t *testing.T) {
	for range 20 {
		bubble(t, func(w world) {
			srv := zktest.NewServer(w)
			c := w.session(srv)
			srv.Partition(c.id)
			c.send(create("/a", 0))
			require.NoError(w, c.conn.Close())
			next := newRaw(w, w.dial(srv))
			next.id, next.password = c.id, c.password
			next.hail(time.Second)
			next.hearsNothing()
			srv.Heal()
			next.welcome()
			require.Equal(w, c.id, next.id)
			require.Equal(w, []string{"a", "zookeeper"}, srv.Children("/"))
		})
	}
}

func TestPartitionOfOneLeavesOthersAlone(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c, other := w.session(srv), w.session(srv)
		srv.Partition(c.id)
		other.did(create("/a", 0))
		w.session(srv).did(get("/a", false))
		c.send(ping())
		c.hearsNothing()
	})
}

func TestPartitionHoldsBackEvents(t *testing.T) {
	silently(t, func(w world, cut func(*zktest.Server, *raw)) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		c.did(list("/", true))
		c.call(exists("/a", true))
		cut(srv, c)
		srv.Put("/a", nil)
		c.hearsNothing()
		c.send(ping())
		srv.Heal()
		for _, want := range []string{"Created /a", "ChildrenChanged /"} {
			kind, path := c.event()
			require.Equal(w, want, kind+" "+path)
		}
		require.EqualValues(w, proto.XidPing, c.read().xid)
	})
}

func TestReconnectOfAPartitionedSessionStaysSilent(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.Partition(c.id)
		require.NoError(w, c.conn.Close())
		next := newRaw(w, w.dial(srv))
		next.id, next.password = c.id, c.password
		next.hail(time.Second)
		next.hearsNothing()
		w.session(srv) // a new session gets through
		srv.Heal()
		next.welcome()
		require.Equal(w, c.id, next.id)
		next.did(ping())
	})
}

func TestPartitionOfAllSwallowsNewConnections(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		srv.Partition()
		_, err := srv.Dialer()("tcp", srv.Addr(), 3*time.Second)
		require.ErrorIs(w, err, os.ErrDeadlineExceeded)
		require.Equal(w, began.Add(3*time.Second), time.Now().UTC())

		connected := make(chan net.Conn)
		go func() {
			conn, _ := srv.Dialer()("tcp", srv.Addr(), patience)
			connected <- conn
		}()
		pass(time.Second)
		srv.Heal()
		session(w, testkit.Receive(w, connected, "a connection"), time.Second).did(ping())
		require.Equal(w, began.Add(4*time.Second), time.Now().UTC())

		srv.Partition()
		refused := make(chan error)
		go func() {
			_, err := srv.Dialer()("tcp", srv.Addr(), 0) // without a limit
			refused <- err
		}()
		pass(time.Hour)
		srv.Stop()
		srv.Heal()
		require.ErrorIs(w, testkit.Receive(w, refused, "the refusal"), syscall.ECONNREFUSED)
	})
}

func TestPartitionOfAllOverTCP(t *testing.T) {
	srv := zktest.NewServer(t)
	srv.Partition()
	c := newRaw(t, tcp(t).dial(srv)) // the kernel's doing
	c.hail(time.Second)
	c.hearsNothing()
	srv.Heal()
	c.welcome()
	c.did(ping())
}

func TestFrozenServerAcceptsAndIsSilent(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		frozen, running := srv.Addrs()[0], srv.Addrs()[1]
		srv.Freeze(frozen)
		c := newRaw(w, w.dial(srv, frozen))
		c.hail(time.Second)
		c.hearsNothing()
		w.session(srv, running)
		srv.Heal(running)
		c.hearsNothing()
		srv.Heal(frozen)
		c.welcome()
	})
}

func TestSessionsExpireInTheSilence(t *testing.T) {
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w world) {
				srv := zktest.NewServer(w)
				c := w.session(srv)
				c.did(create("/a", 1))
				cut(srv, c)
				until(began.Add(5 * time.Second))
				c.send(ping()) // the server doesn'w hear it
				expires(w, srv, c, began.Add(10050*time.Millisecond))
				require.Equal(w, []string{"zookeeper"}, srv.Children("/"))
				c.hearsNothing() // not of that either
				srv.Heal()
				c.end()
				require.Zero(w, c.again(w.dial(srv)).id)
			})
		})
	}
}

// A session that moves while its old connection is silent leaves the pending requests behind.
func TestSessionMovesAwayFromAFrozenServer(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(2))
		c := w.session(srv)
		c.call(exists("/b", true))
		srv.Freeze(srv.Addr())
		c.send(create("/a", 0))
		next := c.again(w.dial(srv, srv.Addrs()[1]))
		require.Equal(w, c.id, next.id)
		srv.Put("/b", nil)
		c.hearsNothing()
		srv.Heal()
		c.end()
		next.did(exists("/b", false))
		require.Equal(w, []string{"b", "zookeeper"}, srv.Children("/"), "from a connection that the session has left")
	})
}

func TestRealClientLivesThroughAPartition(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		conn := w.conn(srv)
		id := conn.SessionID()
		_, err := conn.Create("/a", nil, zk.FlagEphemeral, all)
		require.NoError(w, err)
		srv.Partition(id)
		_, _, err = conn.Get("/a")
		require.ErrorIs(w, err, zk.ErrConnectionClosed)
		srv.Heal()
		testkit.Eventually(w, func() bool { return conn.State() == zk.StateHasSession }, "the session's return")
		require.Equal(w, id, conn.SessionID())
		_, stat, err := conn.Get("/a")
		require.NoError(w, err)
		require.Equal(w, id, stat.EphemeralOwner)
	})
}

func TestStopDuringSilenceIsNotNoticed(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		srv.Partition()
		srv.Stop()
		c.send(ping())
		c.hearsNothing()
		require.NoError(w, srv.Restart())
		c.send(create("/a", 0))
		c.hearsNothing()
		srv.Heal()
		c.end()
		require.Equal(w, []string{"zookeeper"}, srv.Children("/"), "the connection was gone by then")
		c.again(w.dial(srv)).did(ping())
	})
}
