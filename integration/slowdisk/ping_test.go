package slowdisk_test

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/slowdisk"
	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// A server answers a ping that precedes a write of the same session at once, although the quorum is slow. This holds for
// leader and followers, and while writes of other sessions wait. Trust relies on it, as
// internal/zkutil/core/derivation.md explains.
func TestPingAheadOfAWriteIsAnsweredAtOnce(t *testing.T) {
	const fsync = time.Second
	cfg := ensemble.Config{Nodes: 3, Properties: map[string]string{"syncLimit": "20"}}
	require.NoError(t, slowdisk.Install(t.Context(), &cfg))
	e := ensemble.New(t, cfg)
	conn := testkit.Conn(t, e.Servers(), 10*time.Second)
	_, err := conn.Create("/pings", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	sessions := make([]net.Conn, len(e.Servers()))
	for i, server := range e.Servers() {
		sessions[i] = openRaw(t, server)
	}
	require.NoError(t, slowdisk.Slow(t.Context(), e, fsync))
	for i, session := range sessions {
		var pings, writes []time.Duration
		for range 5 {
			other := make(chan error, 1)
			go func() { // ends with the answer; joined below
				_, err := conn.Set("/pings", nil, -1)
				other <- err
			}()
			ping := proto.NewEncoder().Int32(proto.XidPing).Int32(proto.OpPing).Frame()
			write := proto.NewEncoder().Int32(1).Int32(proto.OpSetData).String("/pings").Buffer(nil).Int32(-1).Frame()
			begun := time.Now()
			_, err := session.Write(append(ping, write...))
			require.NoError(t, err)
			require.Equal(t, int32(proto.XidPing), readXid(t, session))
			pings = append(pings, time.Since(begun))
			require.EqualValues(t, 1, readXid(t, session))
			writes = append(writes, time.Since(begun))
			require.NoError(t, <-other)
		}
		t.Logf("server %d: pings answered after %v, writes behind them after %v", i, pings, writes)
		require.Less(t, slices.Max(pings), fsync/2)
		require.GreaterOrEqual(t, slices.Min(writes[1:]), fsync)
	}
	require.NoError(t, slowdisk.Slow(t.Context(), e, 0))
}

// openRaw opens a session on a connection that the test reads and writes itself.
func openRaw(t *testing.T, server string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	hello := proto.NewEncoder().Int32(0).Int64(0).Int32(30_000).Int64(0).Buffer(make([]byte, proto.PasswordLength)).Bool(false)
	_, err = conn.Write(hello.Frame())
	require.NoError(t, err)
	readFrame(t, conn)
	return conn
}

// readXid reads an answer.
func readXid(t *testing.T, conn net.Conn) int32 {
	t.Helper()
	d := proto.NewDecoder(readFrame(t, conn))
	xid, _, code := d.Int32(), d.Int64(), d.Int32()
	require.EqualValues(t, proto.CodeOK, code)
	return xid
}

func readFrame(t *testing.T, conn net.Conn) []byte {
	t.Helper()
	var head [4]byte
	_, err := io.ReadFull(conn, head[:])
	require.NoError(t, err)
	frame := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err = io.ReadFull(conn, frame)
	require.NoError(t, err)
	return frame
}
