package meter_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/bench/meter"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMeter(t *testing.T) *meter.Meter {
	t.Helper()
	m, err := meter.Start(zktest.NewServer(t).Addr())
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

func TestMeterCountsWhatPasses(t *testing.T) {
	m := newMeter(t)
	conn := testkit.Conn(t, []string{m.Addr()}, testkit.Patience)
	m.Reset()

	_, err := conn.Create("/a", []byte("12345"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, _, events, err := conn.GetW("/a")
	require.NoError(t, err)
	require.NoError(t, conn.Delete("/a", -1))
	testkit.Receive(t, events, "the event")

	c := m.Counts()
	require.Equal(t, map[string]int{"create": 1, "getData": 1, "delete": 1}, c.Requests)
	require.Equal(t, "create 1, delete 1, getData 1", c.String())
	require.Equal(t, 3, c.Total())
	require.Equal(t, 3, c.Trips)
	require.Equal(t, 1, c.Events)
	require.Equal(t, 4, c.PacketsDown())
	const (
		headers = 4 + 4 + 4              // length, xid, operation
		create  = 4 + 2 + 4 + 5 + 27 + 4 // path, data, one entry of an ACL, flags
		getData = 4 + 2 + 1              // path, watch
		remove  = 4 + 2 + 4              // path, version
		answer  = 4 + 16                 // length, header
		created = 4 + 2                  // path
		read    = 4 + 5 + 68             // data, stat
		event   = 4 + 4 + 4 + 2          // type, state, path
	)
	require.EqualValues(t, 3*headers+create+getData+remove, c.BytesUp)
	require.EqualValues(t, 4*answer+created+read+event, c.BytesDown)
}

func TestCutConnectionIsMadeAgainThroughTheMeter(t *testing.T) {
	m := newMeter(t)
	conn := testkit.Conn(t, []string{m.Addr()}, testkit.Patience)
	session := conn.SessionID()
	require.Equal(t, 1, m.Counts().Handshakes)
	m.Reset()
	m.Cut()
	testkit.Eventually(t, func() bool {
		_, _, err := conn.Exists("/a")
		return err == nil
	}, "the connection")
	require.Equal(t, session, conn.SessionID())
	require.Equal(t, 1, m.Counts().Handshakes)
}
