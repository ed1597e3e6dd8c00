package faultproxy_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(ensemble.Main(m)) }

const (
	sessionTimeout = 4 * time.Second
	patience       = 20 * time.Second
	moment         = 5 * time.Millisecond
	// silence is how long something must not happen to count as not happening.
	silence = 200 * time.Millisecond
)

// line is a client behind a proxy, and a witness that talks to the server directly.
type line struct {
	proxy   *faultproxy.Proxy
	conn    *zk.Conn
	witness *zk.Conn
}

func newLine(t *testing.T) line {
	t.Helper()
	server := ensemble.Shared(t).Server(0)
	p := faultproxy.New(t, server)
	return line{proxy: p, conn: testkit.Conn(t, []string{p.Addr()}, sessionTimeout), witness: testkit.Conn(t, []string{server}, sessionTimeout)}
}

func dial(t *testing.T, server string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{server}, sessionTimeout, zk.WithLogInfo(false), zk.WithLogger(testkit.Quiet{}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func waitSession(t *testing.T, conn *zk.Conn) {
	t.Helper()
	require.Eventually(t, func() bool { return conn.State() == zk.StateHasSession }, patience, moment)
}

var paths atomic.Int64

// newPath returns a path that no other test uses.
func newPath() string { return fmt.Sprintf("/faultproxy-%d-%d", time.Now().UnixNano(), paths.Add(1)) }

func (l line) create(path string) error {
	_, err := l.conn.Create(path, []byte("x"), 0, zk.WorldACL(zk.PermAll))
	return err
}

// createAsync starts a create and returns where its error will arrive.
func (l line) createAsync(path string) <-chan error {
	result := make(chan error, 1)
	go func() { result <- l.create(path) }() // ends with the call, at the latest when conn is closed
	return result
}

// exists asks the server past the proxy.
func (l line) exists(t *testing.T, path string) bool {
	t.Helper()
	ok, _, err := l.witness.Exists(path)
	require.NoError(t, err)
	return ok
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func requireSilence[T any](t *testing.T, c <-chan T) {
	t.Helper()
	select {
	case <-c:
		require.FailNow(t, "something came")
	case <-time.After(silence):
	}
}
