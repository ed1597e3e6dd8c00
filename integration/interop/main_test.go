package interop_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/curator"
	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/kazoo"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

const (
	// short is the session timeout of contenders that are to lose it.
	short = 4 * time.Second
	// calm is the session timeout of all others. It survives a busy machine.
	calm = 30 * time.Second
	// secret protects what TestACLs makes.
	secret = "user:secret"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		serveAsWorker()
		os.Exit(0)
	}
	flag.Parse()
	// Tests wait for servers and for sessions to expire, far more than they compute.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(runner{m})
}

// runner runs the tests, then removes shared resources.
type runner struct{ m *testing.M }

func (r runner) Run() int {
	status := r.m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = max(status, 1)
	}
	return status
}

// shared is three servers, a Java and a Python process for as many clients as tests like, and a connection to look on. The first
// test to need them starts them.
var shared world

type world struct {
	once     sync.Once
	err      error
	dir      string // the processes' programs
	servers  *ensemble.Ensemble
	java     *curator.Agent
	python   *kazoo.Agent
	observer *zk.Conn
}

func theWorld(t *testing.T) *world {
	t.Helper()
	shared.once.Do(func() { shared.err = shared.open() })
	require.NoError(t, shared.err)
	return &shared
}

func (w *world) open() error {
	ctx := context.Background() // its processes outlive the test
	var err error
	w.servers, err = ensemble.Start(ctx, ensemble.Config{
		Nodes: 3,
		// Disks are irrelevant here. Containers are relevant, and the server looks for empty ones once a minute by
		// default.
		JVMFlags: []string{"-Dzookeeper.forceSync=no", "-Dznode.container.checkIntervalMs=1000"},
	})
	if err != nil {
		return err
	}
	if w.dir, err = os.MkdirTemp("", "interop"); err != nil {
		return err
	}
	if w.java, err = curator.Open(ctx, w.dir, w.servers.Servers(), calm); err != nil {
		return err
	}
	if w.python, err = kazoo.Open(ctx, w.dir, w.servers.Servers(), calm); err != nil {
		return err
	}
	if w.observer, _, err = zk.Connect(w.servers.Servers(), calm, zk.WithLogInfo(false)); err != nil {
		return err
	}
	return w.observer.AddAuth("digest", []byte(secret))
}

func (w *world) close() error {
	var failures []error
	if w.observer != nil {
		w.observer.Close()
	}
	if w.python != nil {
		failures = append(failures, w.python.Close())
	}
	if w.java != nil {
		failures = append(failures, w.java.Close())
	}
	if w.servers != nil {
		failures = append(failures, w.servers.Close())
	}
	return errors.Join(append(failures, os.RemoveAll(w.dir))...)
}

var names atomic.Int64

// unique is a unique name.
func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, names.Add(1)) }

// plainPath is an existing, permanent path of the test. It is no container, which the server would remove without users. A
// server that lags behind that removal, or behind a new container, would mislead a client that asks it for the parents.
func plainPath(t *testing.T) string {
	t.Helper()
	path := testkit.Path(t)
	_, err := theWorld(t).observer.Create(path, []byte{}, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return path
}

// queue lists the znodes below a path in the order of the server's numbers, up to date. A missing path has none.
func queue(t *testing.T, path string) []string {
	t.Helper()
	w := theWorld(t)
	_, err := w.observer.Sync(path)
	require.NoError(t, err)
	children, _, err := w.observer.Children(path)
	if err == zk.ErrNoNode { //nolint:errorlint // zk.Conn returns the value itself
		return nil
	}
	require.NoError(t, err)
	slices.SortFunc(children, func(a, b string) int { return strings.Compare(number(a), number(b)) })
	for i := range children {
		children[i] = path + "/" + children[i]
	}
	return children
}

// queued waits for so many znodes, and returns them.
func queued(t *testing.T, path string, n int) []string {
	t.Helper()
	var nodes []string
	testkit.Eventually(t, func() bool { nodes = queue(t, path); return len(nodes) == n }, fmt.Sprintf("%d znodes below %s", n, path))
	return nodes
}

// number is the number that the server appended to a name.
func number(name string) string { return name[max(0, len(name)-10):] }

// stat looks at a znode, up to date.
func stat(t *testing.T, path string) *zk.Stat {
	t.Helper()
	w := theWorld(t)
	_, err := w.observer.Sync(path)
	require.NoError(t, err)
	exists, stat, err := w.observer.Exists(path)
	require.NoError(t, err)
	require.True(t, exists, path)
	return stat
}

// watchers counts the sessions that watch a znode.
func watchers(t *testing.T, path string) int {
	t.Helper()
	sum := 0
	for _, server := range theWorld(t).servers.Servers() {
		count, err := zkadmin.Watchers(t.Context(), server, path)
		require.NoError(t, err)
		sum += count
	}
	return sum
}
