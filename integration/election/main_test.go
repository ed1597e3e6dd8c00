package election_test

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	// sessionTimeout is what tests ask for: long enough for a busy machine, short enough to wait for an expiry.
	sessionTimeout = 4 * time.Second
	// calm is for tests in which the session has to survive outages on a busy machine.
	calm = 12 * time.Second
	// patience is how long tests wait for something that has to happen.
	patience = 30 * time.Second
)

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		os.Exit(runWorker())
	}
	goleak.VerifyTestMain(ensemble.Main(m))
}

// direct returns a client of the shared server.
func direct(t *testing.T) *recipes.Client {
	t.Helper()
	return testclient.Dial(t, ensemble.Shared(t).Servers(), recipes.WithSessionTimeout(sessionTimeout))
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

// children lists a path as the server has it, in the order of the numbers. A missing path has none.
func children(t *testing.T, conn *zk.Conn, path string) []string {
	t.Helper()
	names, _, err := conn.Children(path)
	if err == zk.ErrNoNode { //nolint:errorlint // zk.Conn returns the value itself
		return nil
	}
	require.NoError(t, err)
	tail := func(name string) string { return name[max(0, len(name)-10):] }
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(tail(a), tail(b)) })
	return names
}

// watchers counts the sessions that watch a znode.
func watchers(t *testing.T, server *ensemble.Ensemble, path string) int {
	t.Helper()
	count, err := zkadmin.Watchers(t.Context(), server.Server(0), path)
	require.NoError(t, err)
	return count
}
