package ensemble_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(ensemble.Main(m)) }

const (
	sessionTimeout = 4 * time.Second
	patience       = 30 * time.Second
	moment         = 20 * time.Millisecond
)

func TestOneNodeServes(t *testing.T) {
	e := ensemble.Shared(t)
	require.Len(t, e.Servers(), 1)
	conn := testkit.Conn(t, e.Servers(), sessionTimeout)
	_, err := conn.Create("/one-node", []byte("x"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	mode, err := e.Mode(testkit.Context(t), 0)
	require.NoError(t, err)
	require.Equal(t, "standalone", mode)
}

func TestSharedIsOne(t *testing.T) {
	first := ensemble.Shared(t)
	require.Same(t, first, ensemble.Shared(t))
}

func TestExpireEndsTheSessionAtOnce(t *testing.T) {
	e := ensemble.Shared(t)
	victim := testkit.Conn(t, []string{e.Server(0)}, sessionTimeout)
	witness := testkit.Conn(t, []string{e.Server(0)}, sessionTimeout)
	id := victim.SessionID()
	_, err := victim.Create("/expire", []byte("x"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	require.NoError(t, zkadmin.Expire(testkit.Context(t), e.Server(0), id))

	exists, _, err := witness.Exists("/expire")
	require.NoError(t, err)
	require.False(t, exists, "the ephemeral node goes with its session")
	require.ErrorIs(t, zkadmin.Expire(testkit.Context(t), e.Server(0), id), zkadmin.ErrNoSession)
	require.Eventually(t, func() bool {
		return victim.State() == zk.StateHasSession && victim.SessionID() != id
	}, patience, moment, "the client goes on in a new session")
}

func TestShortSessionsAreGranted(t *testing.T) {
	e := ensemble.Shared(t)
	testkit.Conn(t, e.Servers(), time.Second)
	answer, err := zkadmin.FourLetter(testkit.Context(t), e.Server(0), "cons")
	require.NoError(t, err)
	require.Contains(t, answer, "to=1000,")
}

func TestKilledNodeRestartsWithItsDataAndAddress(t *testing.T) {
	e := ensemble.New(t, ensemble.Config{Private: true})
	ctx := testkit.Context(t)
	conn := testkit.Conn(t, e.Servers(), sessionTimeout)
	_, err := conn.Create("/kept", []byte("x"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	require.NoError(t, e.Kill(ctx, 0))
	_, err = e.Mode(ctx, 0)
	require.Error(t, err)
	require.NoError(t, e.StartNode(ctx, 0))
	require.NoError(t, e.WaitServing(ctx))

	require.Eventually(t, func() bool {
		exists, _, err := conn.Exists("/kept")
		return err == nil && exists
	}, patience, moment)
}

func TestThreeNodesElectAnotherLeader(t *testing.T) {
	e := ensemble.New(t, ensemble.Config{Nodes: 3})
	ctx := testkit.Context(t)
	first, err := e.Leader(ctx)
	require.NoError(t, err)
	conn := testkit.Conn(t, e.Servers(), sessionTimeout)
	_, err = conn.Create("/kept", []byte("x"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	require.NoError(t, e.Kill(ctx, first))
	second, err := e.Leader(ctx)
	require.NoError(t, err)
	require.NotEqual(t, first, second)

	require.NoError(t, e.StartNode(ctx, first))
	require.NoError(t, e.WaitServing(ctx))
	mode, err := e.Mode(ctx, first)
	require.NoError(t, err)
	require.Equal(t, "follower", mode)

	require.NoError(t, e.Pause(ctx, second))
	third, err := e.Leader(ctx)
	require.NoError(t, err)
	require.NotEqual(t, second, third)
	require.NoError(t, e.Unpause(ctx, second))
	require.NoError(t, e.WaitServing(ctx))

	require.NoError(t, e.Stop(ctx, third))
	fourth, err := e.Leader(ctx)
	require.NoError(t, err)
	require.NotEqual(t, third, fourth)
}

func TestIsolatedLeaderStepsDownAndRejoins(t *testing.T) {
	e := ensemble.New(t, ensemble.Config{Nodes: 3})
	ctx := testkit.Context(t)
	leader, err := e.Leader(ctx)
	require.NoError(t, err)
	require.NoError(t, e.Isolate(ctx, leader))
	require.Eventually(t, func() bool {
		_, err := e.Mode(ctx, leader)
		return errors.Is(err, zkadmin.ErrNotServing)
	}, patience, moment, "clients still reach it, and it takes none")
	successor, err := e.Leader(ctx)
	require.NoError(t, err)
	require.NotEqual(t, leader, successor)

	require.NoError(t, e.Heal(ctx, leader))
	require.NoError(t, e.WaitServing(ctx))
}

func TestLogsHideSessions(t *testing.T) {
	e := ensemble.New(t, ensemble.Config{JVMFlags: []string{"-Dorg.slf4j.simpleLogger.defaultLogLevel=debug"}})
	conn := testkit.Conn(t, e.Servers(), sessionTimeout)
	var logs string
	var err error
	testkit.Eventually(t, func() bool { // Docker takes the lines a little later
		logs, err = e.Logs(testkit.Context(t), 0)
		return err == nil && strings.Contains(logs, "0x…")
	}, "a session in the log")
	require.NotContains(t, logs, strconv.FormatInt(conn.SessionID(), 16))
}

func TestExecReportsStatusAndOutput(t *testing.T) {
	e := ensemble.New(t, ensemble.Config{Private: true})
	out, err := e.Exec(testkit.Context(t), 0, "cat", "/data/myid")
	require.NoError(t, err)
	require.Equal(t, "1", strings.TrimSpace(out))
	_, err = e.Exec(testkit.Context(t), 0, "sh", "-c", "echo broken >&2; exit 7")
	require.ErrorContains(t, err, "status 7")
	require.ErrorContains(t, err, "broken")
}

func TestNamedServersAreUsedAndNotHarmed(t *testing.T) {
	t.Setenv("ZKRECIPES_SERVERS", "192.0.2.1:2181,192.0.2.2:2181")
	e := ensemble.New(t, ensemble.Config{})
	require.Equal(t, []string{"192.0.2.1:2181", "192.0.2.2:2181"}, e.Servers())
	require.ErrorIs(t, e.Kill(t.Context(), 0), ensemble.ErrExternal)
	require.Equal(t, "192.0.2.1:2181,192.0.2.2:2181", os.Getenv("ZKRECIPES_SERVERS"))
}

func TestNodeThatCannotStartReportsWhy(t *testing.T) {
	var err error
	for limit := 5 * time.Second; limit < time.Minute && (err == nil || !strings.Contains(err.Error(), "NumberFormatException")); limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit) // in which a busy machine may not even start the JVM
		_, err = ensemble.Start(ctx, ensemble.Config{Properties: map[string]string{"tickTime": "never"}})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.ErrorContains(t, err, "NumberFormatException")
}
