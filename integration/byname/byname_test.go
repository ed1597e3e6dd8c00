package byname_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/byname"
	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

const timeout = 6 * time.Second

// nameServer is the address of the running test's name server.
var nameServer atomic.Value

func TestMain(m *testing.M) {
	nameServer.Store("127.0.0.1:53")
	// Set once, because abandoned lookups may still read the resolver.
	net.DefaultResolver = byname.ResolverOf(func() string { return nameServer.Load().(string) })
	goleak.VerifyTestMain(ensemble.Main(m))
}

// world is three servers behind one address, and the name server of the process.
type world struct {
	names   *byname.NameServer
	router  *byname.Router
	servers []string                     // as clients are given them
	lines   map[string]*faultproxy.Proxy // by name, behind the router
	options []recipes.Option
}

// newWorld takes the process's name server, so no two tests run at a time.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{lines: map[string]*faultproxy.Proxy{}}
	routes := map[string]string{}
	var err error
	w.names, err = byname.StartNameServer()
	require.NoError(t, err)
	t.Cleanup(w.names.Close)
	for i, server := range ensemble.New(t, ensemble.Config{Nodes: 3}).Servers() {
		name := []string{"zk1", "zk2", "zk3"}[i] + ".zkrecipes.test"
		w.lines[name] = faultproxy.New(t, server)
		routes[name] = w.lines[name].Addr()
		w.names.Set(name, netip.MustParseAddr("127.0.0.1"))
	}
	w.router, err = byname.StartRouter(routes)
	require.NoError(t, err)
	t.Cleanup(w.router.Close)
	for name := range routes {
		w.servers = append(w.servers, net.JoinHostPort(name, w.router.Port()))
	}
	settings, err := byname.Settings(w.router.Roots())
	require.NoError(t, err)
	w.options = []recipes.Option{recipes.WithTLS(settings), recipes.WithSessionTimeout(timeout)}
	nameServer.Store(w.names.Addr())
	return w
}

func (w *world) connect(t *testing.T) *recipes.Client {
	t.Helper()
	client, err := recipes.Connect(testkit.Context(t), w.servers, w.options...)
	require.NoError(t, err)
	return client
}

// serverOf returns the name of the server to which a client is connected.
func (w *world) serverOf(client *recipes.Client) string {
	name, _, _ := strings.Cut(client.Health().Server, "/")
	return name
}

func (w *world) cut() {
	for _, line := range w.lines {
		line.Cut()
	}
}

func acquire(t *testing.T, client *recipes.Client) *recipes.Lease {
	t.Helper()
	m, err := mutex.New(client, testkit.Path(t))
	require.NoError(t, err)
	lease, err := m.Acquire(testkit.Context(t))
	require.NoError(t, err)
	return lease
}

// A server that does not answer costs no lease where the other two have the same address.
func TestLeaseOutlivesSilentServerBehindOneAddress(t *testing.T) {
	w := newWorld(t)
	client := w.connect(t)
	defer func() { require.NoError(t, client.Close()) }()
	for range 2 { // the second time after a reconnect
		lease := acquire(t, client)
		silent := w.serverOf(client)
		require.Contains(t, w.lines, silent)
		w.lines[silent].Hold()
		testkit.Eventually(t, func() bool { server := w.serverOf(client); return server != silent && server != "" }, "another server")
		select {
		case <-lease.Context().Done():
			require.NoError(t, context.Cause(lease.Context()))
		case <-time.After(timeout):
		}
		w.lines[silent].Release()
		require.NoError(t, lease.Release())
	}
}

// A name server that falls silent costs neither a lease nor time. Connect ends with its context, and Close does not wait.
func TestNameServerFallsSilent(t *testing.T) {
	w := newWorld(t)
	client := w.connect(t)
	lease := acquire(t, client)
	states, stop := client.Subscribe()
	defer stop()
	require.Equal(t, recipes.Connected, <-states)
	w.names.Silence(true)
	asked := w.names.Asked()
	for range 5 {
		w.cut()
		require.Equal(t, recipes.Suspended, <-states)
		cutAt := time.Now()
		require.Equal(t, recipes.Reconnected, <-states)
		require.Less(t, time.Since(cutAt), timeout/3)
	}
	require.NoError(t, context.Cause(lease.Context()))
	require.Greater(t, w.names.Asked(), asked)

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	_, err := recipes.Connect(ctx, w.servers, w.options...)
	require.Less(t, time.Since(began), timeout/2)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var lookup *net.DNSError
	require.ErrorAs(t, err, &lookup)

	w.cut() // its lookups are pending when it is closed
	require.NoError(t, lease.Release())
	began = time.Now()
	require.NoError(t, client.Close())
	require.Less(t, time.Since(began), timeout/3, "zk.Conn.Close may wait for a second")
}

// Servers that moved are found by their names, and the client asks the name server after each disconnect.
func TestServersMoveToAnotherAddress(t *testing.T) {
	w := newWorld(t)
	client := w.connect(t)
	defer func() { require.NoError(t, client.Close()) }()
	lease := acquire(t, client)
	for i := range 3 {
		address := netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 2)})
		for name := range w.lines {
			w.names.Set(name, address)
		}
		next, err := net.Listen("tcp", net.JoinHostPort(address.String(), w.router.Port()))
		require.NoError(t, err)
		moved := w.router.ServeAlso(next)
		w.cut()
		testkit.Eventually(t, func() bool { return strings.Contains(client.Health().Server, "/"+address.String()+":") }, "the new address")
		require.NoError(t, context.Cause(lease.Context()))
		defer moved()
	}
	require.NoError(t, lease.Release())
}
