package places_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// Without dynamic reconfiguration each server shows the names of its own zoo.cfg. The first server has host names, the second
// addresses, and the third calls itself 0.0.0.0. A client that tracks the ensemble stays at its server, and finds the others
// when the server stops.
func TestTrackingOfServersWithNamesOfTheirOwn(t *testing.T) {
	servers := ensemble.New(t, ensemble.Config{
		Nodes: 3, Private: true,
		JVMFlags: []string{"-Dzookeeper.forceSync=no"},
		Properties: map[string]string{
			"server.1": "zk1:2888:3888;2181", "server.2": "zk2:2888:3888;2181", "server.3": "zk3:2888:3888;2181",
		},
	})
	published := map[string]string{}
	var names, addresses []string
	for i := range 3 {
		names = append(names, fmt.Sprint("zk", i+1))
		out, err := servers.Exec(testkit.Context(t), i, "hostname", "-i")
		require.NoError(t, err)
		addresses = append(addresses, strings.Fields(out)[0])
		published[names[i]+":2181"], published[addresses[i]+":2181"] = servers.Server(i), servers.Server(i)
	}
	hosts := [3][]string{names, addresses, {"zk1", "zk2", "0.0.0.0"}}
	for i := range 3 {
		properties := map[string]string{}
		for j, host := range hosts[i] {
			properties[fmt.Sprint("server.", j+1)] = host + ":2888:3888;2181"
		}
		require.NoError(t, servers.Configure(testkit.Context(t), i, properties))
	}
	require.NoError(t, servers.RollingRestart(testkit.Context(t), nil))

	var dials atomic.Int32
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		dials.Add(1)
		return net.DialTimeout(network, published[address], timeout)
	}
	var log testkit.Log
	const timeout = 12 * time.Second
	client := testclient.Dial(t, []string{"zk1:2181", "zk2:2181", "zk3:2181"}, recipes.WithDialer(dial),
		recipes.WithSessionTimeout(timeout), recipes.WithEnsembleTracking(), recipes.WithLogger(log.Logger(slog.LevelInfo)))
	lock, err := mutex.New(client, testkit.Path(t))
	require.NoError(t, err)
	lease, err := lock.Acquire(testkit.Context(t))
	require.NoError(t, err)
	for i := range 3 {
		session, server := client.Conn().SessionID(), client.Health().Server
		before, written := dials.Load(), log.String()
		time.Sleep(timeout) //nolint:forbidigo // several reads of the configuration
		require.Equal(t, server, client.Health().Server)
		require.Equal(t, before, dials.Load(), "the client stays at its server")
		news := strings.TrimPrefix(log.String(), written)
		if i == 0 && strings.Contains(news, `msg="ensemble changed"`) { // by the first read of the configuration, which may end after the acquire
			news = news[strings.Index(news, "\n")+1:]
		}
		require.Empty(t, news)

		own := -1
		for node := range 3 {
			if published[server] == servers.Server(node) {
				own = node
			}
		}
		require.GreaterOrEqual(t, own, 0, "round %d: %q", i, server)
		require.NoError(t, servers.Stop(testkit.Context(t), own))
		require.Eventually(t, func() bool {
			now := client.Health().Server
			return client.State() == recipes.Connected && published[now] != servers.Server(own)
		}, patience, 20*time.Millisecond)
		require.NoError(t, servers.StartNode(testkit.Context(t), own))
		require.NoError(t, servers.WaitServing(testkit.Context(t)))
		require.Equal(t, session, client.Conn().SessionID())
		require.NoError(t, context.Cause(lease.Context()))
	}
	require.NoError(t, lease.Release())
}
