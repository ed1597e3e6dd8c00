package ensemble_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

func TestContainersAreReapedAsOftenAsTheFlagSays(t *testing.T) {
	e := ensemble.New(t, ensemble.Config{JVMFlags: []string{"-Dznode.container.checkIntervalMs=100"}})
	conn := testkit.Conn(t, e.Servers(), sessionTimeout)
	_, err := conn.CreateContainer("/c", []byte("x"), zk.FlagContainer, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = conn.Create("/c/child", []byte("x"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.NoError(t, conn.Delete("/c/child", -1))
	require.Eventually(t, func() bool {
		exists, _, err := conn.Exists("/c")
		return err == nil && !exists
	}, patience, moment)
}

func TestServerOnNettyServes(t *testing.T) {
	e := ensemble.New(t, ensemble.Config{
		JVMFlags: []string{"-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"},
	})
	conn := testkit.Conn(t, e.Servers(), sessionTimeout)
	_, _, err := conn.Exists("/")
	require.NoError(t, err)
	require.Empty(t, e.SecureServers())
}

func TestFilesArePutIntoTheNode(t *testing.T) {
	e := ensemble.New(t, ensemble.Config{Files: map[string][]byte{"/conf/extra": []byte("content")}})
	out, err := e.Exec(testkit.Context(t), 0, "cat", "/conf/extra")
	require.NoError(t, err)
	require.Equal(t, "content", out)
}
