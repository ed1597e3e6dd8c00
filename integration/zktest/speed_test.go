//go:build !race

// The race detector slows down a server in this process, and not the one beside it.

// Package zktest_test compares zktest with the real server.
package zktest_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

const (
	connections = 8
	pairs       = 500 // of each connection, in each round
	rounds      = 11
)

// TestSpeedOfZktest compares create+delete pairs per second with those of a real server that doesn't wait for its
// disk, in alternating rounds, so that other load on the machine affects both. zktest does at least twice as many.
func TestSpeedOfZktest(t *testing.T) {
	zookeeper := ensemble.New(t, ensemble.Config{JVMFlags: []string{"-Dzookeeper.forceSync=no"}, Private: true})
	servers := [2][]*zk.Conn{
		connectAll(t, zookeeper.Servers()),
		connectAll(t, []string{zktest.NewServer(t).Addr()}),
	}
	for range 3 { // warms up
		round(t, servers[0])
		round(t, servers[1])
	}
	var ratios []float64
	for range rounds {
		theirs, ours := round(t, servers[0]), round(t, servers[1])
		ratios = append(ratios, theirs.Seconds()/ours.Seconds())
		t.Logf("create+delete pairs/s: zktest %.0f, ZooKeeper without fsync %.0f, ratio %.1f",
			rate(ours), rate(theirs), ratios[len(ratios)-1])
	}
	slices.Sort(ratios)
	t.Logf("median ratio %.1f", ratios[rounds/2])
	require.GreaterOrEqual(t, ratios[rounds/2], 2.0, "of %.1f", ratios)
}

func rate(d time.Duration) float64 { return connections * pairs / d.Seconds() }

func connectAll(t *testing.T, servers []string) []*zk.Conn {
	t.Helper()
	conns := make([]*zk.Conn, connections)
	for i := range conns {
		conns[i] = testkit.Conn(t, servers, 30*time.Second)
	}
	return conns
}

// round takes all connections through their pairs side by side.
func round(t *testing.T, conns []*zk.Conn) time.Duration {
	t.Helper()
	began := time.Now()
	errs := make([]error, len(conns))
	var group sync.WaitGroup
	for i, conn := range conns {
		group.Go(func() { errs[i] = createAndDelete(conn) })
	}
	group.Wait()
	took := time.Since(began)
	require.NoError(t, errors.Join(errs...))
	return took
}

func createAndDelete(conn *zk.Conn) error {
	for range pairs {
		path, err := conn.Create("/pair-", []byte("x"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err != nil {
			return err
		}
		if err := conn.Delete(path, -1); err != nil {
			return err
		}
	}
	return nil
}
