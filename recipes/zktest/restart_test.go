package zktest_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestStopRefusesAndRestartKeepsEverything(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		address := srv.Addr()
		c := w.session(srv)
		c.did(create("/a", 1))
		c.did(create("/b", 0))
		srv.Stop()
		c.end()
		_, err := w.dialer(srv)("tcp", address, time.Second)
		require.ErrorIs(w, err, syscall.ECONNREFUSED)
		srv.Stop()
		require.NoError(w, srv.Restart())
		require.NoError(w, srv.Restart())
		require.Equal(w, address, srv.Addr())
		next := c.again(w.dial(srv))
		require.Equal(w, c.id, next.id)
		require.Equal(w, []string{"a", "b", "zookeeper"}, srv.Children("/"))
		next.did(create("/c", 1))
	})
}

func TestRestartBeginsAnEpoch(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3))
		c := w.session(srv)
		c.did(create("/a", 0))
		require.EqualValues(w, 1, c.seen>>32)
		srv.Stop(srv.Addr())
		require.NoError(w, srv.Restart())
		c = c.again(w.dial(srv))
		require.EqualValues(w, 1, c.did(ping()).zxid>>32, "the others never stopped")
		srv.Stop()
		require.NoError(w, srv.Restart(srv.Addrs()[:2]...))
		c = c.again(w.dial(srv))
		require.EqualValues(w, 2<<32, c.did(ping()).zxid)
		require.EqualValues(w, 2<<32+1, c.did(create("/b", 0)).zxid)
		require.NoError(w, srv.Restart())
		require.EqualValues(w, 2, c.did(ping()).zxid>>32)
	})
}

func TestSessionsDoNotAgeWhileAllServersAreStopped(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3))
		c := w.session(srv)
		until(began.Add(9 * time.Second))
		srv.Stop()
		until(began.Add(time.Hour))
		require.NoError(w, srv.Restart())
		expires(w, srv, c, began.Add(time.Hour+10050*time.Millisecond))
	})
}

func TestSessionsAgeWhileAMajorityRuns(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3))
		c := w.session(srv)
		srv.Stop(srv.Addr())
		until(began.Add(9 * time.Second))
		require.NoError(w, srv.Restart())
		expires(w, srv, c, began.Add(10050*time.Millisecond))
	})
}

func TestStopOfOneLeavesTheOthers(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3))
		addresses := srv.Addrs()
		first, second := w.session(srv, addresses[0]), w.session(srv, addresses[1])
		srv.Stop(addresses[0])
		first.end()
		second.did(create("/a", 0))
		next := first.again(w.dial(srv, addresses[2]))
		require.Equal(w, first.id, next.id)
		next.did(get("/a", false))
	})
}

func TestRealClientMovesToAnotherServer(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w, zktest.WithServers(3))
		conn := w.conn(srv)
		id := conn.SessionID()
		at, _ := srv.Session(id)
		srv.Stop(at.Server)
		testkit.Eventually(w, func() bool {
			now, _ := srv.Session(id)
			return now.Server != "" && now.Server != at.Server && conn.State() == zk.StateHasSession
		}, "the session elsewhere")
		require.Equal(w, id, conn.SessionID())
	})
}

// The server whose port is free starts nevertheless, with the full effect of a start.
func TestRestartWhereAPortIsTaken(t *testing.T) {
	srv := zktest.NewServer(t, zktest.WithServers(3))
	addresses := srv.Addrs()
	c := tcp(t).session(srv)
	srv.Stop()
	taken, err := net.Listen("tcp", addresses[0])
	require.NoError(t, err)
	err = srv.Restart()
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, addresses[0])
	c = c.again(tcp(t).dial(srv, addresses[1]))
	require.EqualValues(t, 2, c.did(ping()).zxid>>32)
	n, _ := srv.Session(c.id)
	require.False(t, n.Expiry.Before(time.Now().Add(9*time.Second)))

	require.NoError(t, taken.Close())
	require.NoError(t, srv.Restart())
	require.EqualValues(t, 2, c.again(tcp(t).dial(srv, addresses[0])).did(ping()).zxid>>32)
}

func TestSessionsExpireAfterASecondRestart(t *testing.T) {
	srv := zktest.NewServer(t)
	session(t, tcp(t).dial(srv), 200*time.Millisecond)
	srv.Stop()
	taken, err := net.Listen("tcp", srv.Addr())
	require.NoError(t, err)
	require.Error(t, srv.Restart())
	require.NoError(t, taken.Close())
	require.NoError(t, srv.Restart())
	testkit.Eventually(t, func() bool { return len(srv.Sessions()) == 0 }, "the session's end")
}

func TestDisconnect(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		a, b, c := w.session(srv), w.session(srv), w.session(srv)
		nobody := newRaw(w, w.dial(srv))
		testkit.Eventually(w, func() bool { return srv.Connections() == 4 }, "the connection, which the kernel accepts first")
		srv.Disconnect(a.id, b.id)
		a.end()
		b.end()
		c.did(ping())
		nobody.hearsNothing()
		require.Equal(w, 2, srv.Connections())
		require.Len(w, srv.Sessions(), 3)
		a = a.again(w.dial(srv))
		a.did(ping())
		srv.Disconnect()
		a.end()
		c.end()
		nobody.end()
		require.Zero(w, srv.Connections())
	})
}
