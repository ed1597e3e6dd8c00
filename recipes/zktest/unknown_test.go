package zktest_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A server treats an operation that it lacks in one of three ways, and supports all others.
func TestServerThatLacksAnOperation(t *testing.T) {
	for how, want := range map[zktest.UnknownOp]struct {
		err  string
		ends bool
	}{
		zktest.UnknownUnimplemented: {"unknown error: -6", true},
		zktest.UnknownBadArguments:  {zk.ErrBadArguments.Error(), false},
		zktest.UnknownHangUp:        {zk.ErrConnectionClosed.Error(), true},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := zktest.NewServer(t, zktest.WithUnknownOps(how, zktest.OpCreateContainer))
			log := srv.Observe()
			conn, _, err := zk.Connect([]string{srv.Addr()}, time.Minute, zk.WithDialer(srv.Dialer()), zk.WithLogInfo(false))
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Create("/a", nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			_, err = conn.CreateContainer("/b", nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
			require.EqualError(t, err, want.err)
			require.NotContains(t, srv.Children("/"), "b")
			_, err = conn.Create("/c", nil, 0, zk.WorldACL(zk.PermAll))
			for want.ends && err != nil { // zk.Conn fails requests until it is connected again
				time.Sleep(time.Second) //nolint:forbidigo // virtual time
				_, err = conn.Create("/c", nil, 0, zk.WorldACL(zk.PermAll))
			}
			require.NoError(t, err)
			require.Equal(t, want.ends, len(log.Requests(zktest.OpConnect)) == 2)
		})
	}
}

func TestServerLacksNoHandshake(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpAny, zktest.OpConnect, zktest.OpPing, zktest.OpClose, zktest.OpAuth} {
		_, err := zktest.Start(zktest.WithUnknownOps(zktest.UnknownHangUp, op))
		require.ErrorContains(t, err, op.String())
	}
	_, err := zktest.Start(zktest.WithUnknownOps(3))
	require.Error(t, err)
}
