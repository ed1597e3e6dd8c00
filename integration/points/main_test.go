// Package points_test plays every recipe on a real server, once for each request and each way in which that request can
// fail: its answer lost, the request dropped, its connection killed. For every failure, the recipe has to reach the
// same end, leave nothing in ZooKeeper and block no other client.
//
//	go test -race ./points                          # each fault 3 times at each point
//	go test -race -timeout 30m ./points -rounds 25  # the figures of docs/evidence/reliability.md
//
// A scenario is a small function that plays a recipe with its own client. Its requests in a play without a fault are
// its points. Heartbeats and pings do not count, unless the scenario waits for them.
package points_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
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

var (
	rounds    = flag.Int("rounds", 3, "how often each fault strikes at each point")
	firstSeed = flag.Uint64("seed", 0, "of the order and of the moments at which connections are killed; 0: a fresh one")
	only      = flag.String("scenario", "", "play only the scenarios whose part and name, \"part: name\", contain this")
)

const (
	// side is how many clients meet their faults side by side.
	side = 16
	// sessionTimeout is long, so that a missing znode was deleted, and did not expire.
	sessionTimeout = 30 * time.Second
	// beating is for scenarios that wait for a heartbeat, or for the session's end. The first heartbeat is sent after
	// a sixth.
	beating = 6 * time.Second
	// patience bounds the wait of a play for an expected event. It is shorter than the session.
	patience = 20 * time.Second
	// stuck is when a play is given up.
	stuck = 2 * time.Minute
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(ensemble.Main(m)) }

func chosenSeed(t *testing.T) uint64 {
	t.Helper()
	seed := *firstSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	return seed
}

// world is shared by all plays: a server, and a plain connection to inspect it.
type world struct {
	server string
	admin  *zk.Conn
	root   string
	serial atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	// Empty containers stay, so that plays send the same requests each time. The disk has nothing to do with it, and a
	// server that lives for a minute is not worth compiling at length.
	e := ensemble.New(t, ensemble.Config{Private: true, JVMFlags: []string{
		"-Dzookeeper.forceSync=no", "-Dznode.container.checkIntervalMs=86400000", "-XX:TieredStopAtLevel=1",
	}, Properties: map[string]string{"maxClientCnxns": "0"}})
	admin := testkit.Conn(t, e.Servers(), sessionTimeout)
	w := &world{server: e.Server(0), admin: admin, root: "/points"}
	_, err := admin.CreateContainer(w.root, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return w
}

// connect returns a client of the server, past all proxies.
func (w *world) connect(t *testing.T) *recipes.Client {
	t.Helper()
	return testclient.Dial(t, []string{w.server}, recipes.WithSessionTimeout(sessionTimeout))
}

// directory is a path that no other play uses.
func (w *world) directory() string { return fmt.Sprintf("%s/%d", w.root, w.serial.Add(1)) }

// isEmpty waits until the server has no ephemeral znode and no watch of any client.
func (w *world) isEmpty(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var state string
	require.Eventually(t, func() bool {
		var err error
		state, err = zkadmin.FourLetter(ctx, w.server, "mntr")
		return err == nil && strings.Contains(state, "zk_ephemerals_count\t0\n") && strings.Contains(state, "zk_watch_count\t0\n")
	}, patience, 50*time.Millisecond, "the server still has ephemeral znodes or watches")
}
