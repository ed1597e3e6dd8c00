package zktest_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// world is a test together with the way in which clients reach a server: over TCP, or over pipes in
// a bubble.
type world struct {
	*testing.T
	virtual bool
}

// everywhere runs a test in both worlds.
func everywhere(t *testing.T, test func(w world)) {
	t.Helper()
	t.Run("tcp", func(t *testing.T) { test(tcp(t)) })
	t.Run("virtual", func(t *testing.T) { bubble(t, test) })
}

func tcp(t *testing.T) world {
	t.Helper()
	return world{T: t}
}

// bubble runs a test in a bubble.
func bubble(t *testing.T, test func(w world)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) { test(world{T: t, virtual: true}) })
}

// dial connects to the first server, or to another server.
func (w world) dial(srv *zktest.Server, address ...string) net.Conn {
	w.Helper()
	conn, err := w.dialer(srv)("tcp", append(address, srv.Addr())[0], patience)
	require.NoError(w, err)
	return conn
}

func (w world) dialer(srv *zktest.Server) zk.Dialer {
	if w.virtual {
		return srv.Dialer()
	}
	return net.DialTimeout
}

// session opens a session of 10 s with a raw client.
func (w world) session(srv *zktest.Server, address ...string) *raw {
	w.Helper()
	return session(w, w.dial(srv, address...), 10*time.Second)
}

// client returns a client of this library, closed at the end of the test.
func (w world) client(srv *zktest.Server) *recipes.Client {
	w.Helper()
	return testclient.Dial(w, srv.Addrs(), recipes.WithDialer(w.dialer(srv)), recipes.WithSessionTimeout(10*time.Second))
}

// conn returns a connected client, closed at the end of the test.
func (w world) conn(srv *zktest.Server) *zk.Conn {
	w.Helper()
	return testkit.Conn(w, srv.Addrs(), 10*time.Second, zk.WithDialer(w.dialer(srv)))
}

// pass lets virtual time pass, including all events due at the end of d.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

// until lets virtual time pass up to a moment.
func until(t time.Time) { pass(time.Until(t)) }

// began is the time at which every bubble begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// all is an ACL for all users.
var all = zk.WorldACL(zk.PermAll)
