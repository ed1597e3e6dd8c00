package mutex_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// sessionTimeout is what tests ask for: long enough for a busy machine, short
// enough to wait for an expiry.
const sessionTimeout = 4 * time.Second

// longSession is long enough for no heartbeat and no ping to be due in a test that
// counts requests.
const longSession = 60 * time.Second

// errOfTest is an error of a test's own.
var errOfTest = errors.New("of the test")

// patience is how long tests wait for something that has to happen.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if worker := os.Getenv(workerVariable); worker != "" {
		os.Exit(runWorker(worker))
	}
	goleak.VerifyTestMain(ensemble.Main(m))
}

// proxied returns a client that reaches the shared server through a proxy.
func proxied(t *testing.T, opts ...recipes.Option) (*recipes.Client, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.New(t, ensemble.Shared(t).Server(0))
	return testclient.Dial(t, []string{proxy.Addr()}, short(opts)...), proxy
}

// short puts the tests' session timeout before the options.
func short(opts []recipes.Option) []recipes.Option {
	return append([]recipes.Option{recipes.WithSessionTimeout(sessionTimeout)}, opts...)
}

// direct returns a client of the shared server.
func direct(t *testing.T, opts ...recipes.Option) *recipes.Client {
	t.Helper()
	return testclient.Dial(t, ensemble.Shared(t).Servers(), short(opts)...)
}

func newMutex(t *testing.T, client *recipes.Client, path string, opts ...mutex.Option) *mutex.InterProcessMutex {
	t.Helper()
	m, err := mutex.New(client, path, opts...)
	require.NoError(t, err)
	return m
}

func acquire(t *testing.T, m *mutex.InterProcessMutex) *recipes.Lease {
	t.Helper()
	lease, err := m.Acquire(testkit.Context(t))
	require.NoError(t, err)
	return lease
}

// children lists a path at the server, past proxies. A missing path has none.
func children(t *testing.T, path string) []string {
	t.Helper()
	names, _, err := observer(t).Children(path)
	if err == zk.ErrNoNode { //nolint:errorlint // zk.Conn returns the value itself
		return nil
	}
	require.NoError(t, err)
	return names
}

// observers holds one plain connection to the shared server for each running test.
var observers sync.Map

// observer returns the test's plain connection to the shared server.
func observer(t *testing.T) *zk.Conn {
	t.Helper()
	if conn, ok := observers.Load(t); ok {
		return conn.(*zk.Conn)
	}
	conn := testkit.Conn(t, ensemble.Shared(t).Servers(), 10*time.Second)
	observers.Store(t, conn)
	t.Cleanup(func() { observers.Delete(t) })
	return conn
}

// ended waits for a lease's context to end and returns why.
func ended(t *testing.T, lease *recipes.Lease) error {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-testkit.Context(t).Done():
		require.Fail(t, "the lease's context has not ended")
	}
	return context.Cause(lease.Context())
}

// waiting starts an Acquire in the background and returns once its znode is the
// queue's n-th.
func waiting(t *testing.T, ctx context.Context, m *mutex.InterProcessMutex, path string, n int) <-chan result { //nolint:revive // t first
	t.Helper()
	done := make(chan result, 1)
	go func() {
		lease, err := m.Acquire(ctx)
		done <- result{lease, err}
	}()
	testkit.Eventually(t, func() bool { return len(children(t, path)) == n }, "the waiter's znode")
	return done
}

type result struct {
	lease *recipes.Lease
	err   error
}

// outcome waits for the acquisition started by waiting.
func outcome(t *testing.T, done <-chan result) (*recipes.Lease, error) {
	t.Helper()
	select {
	case r := <-done:
		return r.lease, r.err
	case <-testkit.Context(t).Done():
		require.Fail(t, "Acquire has not returned")
		return nil, nil
	}
}

// requests returns a proxy's counts since its last reset, by operation, without handshakes.
func requests(proxy *faultproxy.Proxy) map[string]int {
	counted := proxy.Counts().Requests
	delete(counted, "connect")
	return counted
}
