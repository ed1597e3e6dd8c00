// Package places_test follows servers that move.
package places_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(ensemble.Main(m)) }

const patience = time.Minute

// The client's server in a real ensemble is removed by dynamic reconfiguration, stopped, and added again. Then the other two are
// removed, one after the other, so that the client has to use the server that was added. The lease stands throughout, although the
// leader leaves once or twice. The servers take clients on all addresses, so that the configuration says 0.0.0.0.
func TestTrackingOfReconfiguredEnsemble(t *testing.T) {
	servers := ensemble.New(t, ensemble.Config{
		Nodes: 3, Private: true,
		JVMFlags: []string{"-Dzookeeper.forceSync=no", "-Dzookeeper.skipACL=yes"}, // who may reconfigure is not the subject
		Properties: map[string]string{
			"reconfigEnabled": "true", "standaloneEnabled": "false",
			"server.1": "zk1:2888:3888;2181", "server.2": "zk2:2888:3888;2181", "server.3": "zk3:2888:3888;2181",
		},
	})
	published := map[string]string{"zk1:2181": servers.Server(0), "zk2:2181": servers.Server(1), "zk3:2181": servers.Server(2)}
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout(network, published[address], timeout)
	}
	client := testclient.Dial(t, []string{"zk1:2181"}, recipes.WithDialer(dial), recipes.WithSessionTimeout(12*time.Second), recipes.WithEnsembleTracking())
	lock, err := mutex.New(client, testkit.Path(t))
	require.NoError(t, err)
	lease, err := lock.Acquire(testkit.Context(t))
	require.NoError(t, err)
	session := client.Conn().SessionID()
	requireServer := func(wanted string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return strings.Contains(wanted, client.Health().Server) && client.State() == recipes.Connected
		}, patience, 20*time.Millisecond)
	}
	requireServer("zk1:2181")

	admin := testkit.Conn(t, servers.Servers()[1:], 12*time.Second)
	_, err = admin.IncrementalReconfig(nil, []string{"1"}, -1)
	require.NoError(t, err)
	requireServer("zk2:2181 zk3:2181")
	require.Equal(t, session, client.Conn().SessionID())
	rejoin := `file=$(sed -n 's/^dynamicConfigFile=//p' /conf/zoo.cfg); ! grep '^server.1=' $file && printf '\nserver.1=zk1:2888:3888;2181\n' >> $file`
	testkit.Eventually(t, func() bool {
		_, err := servers.Exec(testkit.Context(t), 0, "sh", "-c", rejoin)
		return err == nil
	}, "the removed server knows that, and gets a configuration in which it is a member, or else it does not start")
	require.NoError(t, servers.Stop(testkit.Context(t), 0))

	require.NoError(t, servers.StartNode(testkit.Context(t), 0))
	require.Eventually(t, func() bool {
		_, err = admin.IncrementalReconfig([]string{"server.1=zk1:2888:3888;2181"}, nil, -1)
		return err == nil
	}, patience, 500*time.Millisecond, "the new server has to catch up first")
	require.Contains(t, members(t, admin), "server.1=zk1:2888:3888:participant;0.0.0.0:2181")
	require.NoError(t, context.Cause(lease.Context()))

	admin = testkit.Conn(t, servers.Servers()[:1], 12*time.Second)
	leave := func(id string) {
		t.Helper()
		testkit.Eventually(t, func() bool {
			// If the leader leaves, the answer may be lost with it.
			_, err := admin.IncrementalReconfig(nil, []string{id}, -1)
			return err == nil || !strings.Contains(members(t, admin), "server."+id+"=")
		}, "server "+id+" leaves")
	}
	own, other := "2", "3" // the client's server, unless it has moved to the first
	if client.Health().Server == "zk3:2181" {
		own, other = other, own
	}
	leave(own)
	requireServer("zk1:2181 zk" + other + ":2181")
	leave(other)
	requireServer("zk1:2181")
	time.Sleep(13 * time.Second) //nolint:forbidigo // a session timeout: the lease needs its proofs
	require.NoError(t, context.Cause(lease.Context()))
	require.Equal(t, session, client.Conn().SessionID())
	require.NoError(t, lease.Release())
}

// members returns the configuration of the ensemble, and waits while the servers elect a leader.
func members(t *testing.T, admin *zk.Conn) (config string) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		data, _, err := admin.Get("/zookeeper/config")
		config = string(data)
		return err == nil
	}, "the configuration")
	return config
}
