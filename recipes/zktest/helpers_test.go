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

// world is a test, and how clients reach a server in it: over TCP, or over pipes in a
// bubble of virtual time.
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
	synctest.Test(t, func(t *testing.T) { test(world{T: t, virtual: true}) })
}

// dial connects to the server, or to another than the first.
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

// session opens one with a raw client, of 10 s.
func (w world) session(srv *zktest.Server, address ...string) *raw {
	w.Helper()
	return session(w, w.dial(srv, address...), 10*time.Second)
}

// client returns a client of this library, closed at the end of the test.
func (w world) client(srv *zktest.Server) *recipes.Client {
	w.Helper()
	return testclient.Dial(w, srv.Addrs(), recipes.WithDialer(w.dialer(srv)), recipes.WithSessionTimeout(10*time.Second))
}

// conn returns a client that is connected, closed at the end of the test.
func (w world) conn(srv *zktest.Server) *zk.Conn {
	w.Helper()
	return testkit.Conn(w, srv.Addrs(), 10*time.Second, zk.WithDialer(w.dialer(srv)))
}

// pass lets virtual time go by, and whatever is due at its end happen.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

// until lets virtual time go by up to a moment.
func until(t time.Time) { pass(time.Until(t)) }

// began is when every bubble begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// all is an ACL for anybody.
var all = zk.WorldACL(zk.PermAll)
