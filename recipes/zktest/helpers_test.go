package zktest_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

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

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// client returns a client of this library, closed at the end of the test.
func (w world) client(srv *zktest.Server) *recipes.Client {
	w.Helper()
	client, err := recipes.Connect(w.Context(), srv.Addrs(),
		recipes.WithDialer(w.dialer(srv)), recipes.WithSessionTimeout(10*time.Second))
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, client.Close()) })
	return client
}

// conn returns a client that is connected, closed at the end of the test.
func (w world) conn(srv *zktest.Server) *zk.Conn {
	w.Helper()
	conn, events, err := zk.Connect(srv.Addrs(), 10*time.Second, zk.WithDialer(w.dialer(srv)), zk.WithLogger(quiet{}))
	require.NoError(w, err)
	w.Cleanup(func() {
		conn.Close()
		for range events { // until the client's goroutines are gone
		}
	})
	for conn.State() != zk.StateHasSession {
		select {
		case <-events:
		case <-time.After(patience):
			require.FailNow(w, "no session")
		}
	}
	return conn
}

// within is a context that ends before a test would hang.
func within(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	tb.Cleanup(cancel)
	return ctx
}

// done waits for a channel to be closed, or for a value.
func done[T any](tb testing.TB, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(tb, "waited in vain")
		panic("unreachable")
	}
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
