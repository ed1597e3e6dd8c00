package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// scriptedConn is a connection that delivers some bytes and then ends.
type scriptedConn struct {
	net.Conn
	in io.Reader
}

func (s scriptedConn) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s scriptedConn) Write(p []byte) (int, error)      { return len(p), nil }
func (s scriptedConn) Close() error                     { return nil }
func (s scriptedConn) SetDeadline(time.Time) error      { return nil }
func (s scriptedConn) SetReadDeadline(time.Time) error  { return nil }
func (s scriptedConn) SetWriteDeadline(time.Time) error { return nil }
func (s scriptedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// newLineReading returns a line with the server's data in, and its owner.
func newLineReading(tb testing.TB, in []byte) (*Line, *testOwner) {
	tb.Helper()
	o := &testOwner{period: time.Millisecond, patience: time.Minute} // a dial may take long on a busy machine
	conn, err := newTestWire(tb, o, scriptedConn{in: bytes.NewReader(in)}).Dial("tcp", "a:1", 0)
	require.NoError(tb, err)
	l, ok := conn.(*Line)
	require.True(tb, ok)
	return l, o
}

// The frames below are as sent, each with its length in front.

func handshakeFrame(id int64) []byte {
	return proto.NewEncoder().Int32(0).Int32(4000).Int64(id).Buffer([]byte("sixteen bytes ok")).Frame()
}

func answerFrame(xid int32, zxid int64, code int32) []byte {
	return proto.NewEncoder().Int32(xid).Int64(zxid).Int32(code).Frame()
}

// childrenFrame is the answer to a request for the children of a znode that has none.
func childrenFrame(xid int32, zxid int64) []byte {
	return proto.NewEncoder().Raw(answerFrame(xid, zxid, proto.CodeOK)[4:]).Strings(nil).Stat(zk.Stat{}).Frame()
}

// dataFrame is the answer to a request for a znode's data.
func dataFrame(xid int32, zxid int64) []byte {
	return proto.NewEncoder().Raw(answerFrame(xid, zxid, proto.CodeOK)[4:]).Buffer(nil).Stat(zk.Stat{}).Frame()
}

// statFrame is the answer to a request whether a znode exists.
func statFrame(xid int32, zxid int64) []byte {
	return proto.NewEncoder().Raw(answerFrame(xid, zxid, proto.CodeOK)[4:]).Stat(zk.Stat{}).Frame()
}

func eventFrame(kind int32, path string) []byte {
	return proto.NewEncoder().Int32(proto.XidEvent).Int64(-1).Int32(proto.CodeOK).Int32(kind).Int32(3).String(path).Frame()
}

func requestFrame(xid, op int32, path string, watch bool) []byte {
	return proto.NewEncoder().Int32(xid).Int32(op).String(path).Bool(watch).Frame()
}

func TestLineReadsTheTimeout(t *testing.T) {
	l, o := newLineReading(t, handshakeFrame(7))
	got, err := io.ReadAll(l)
	require.NoError(t, err)
	require.Equal(t, handshakeFrame(7), got)
	require.Equal(t, []time.Duration{4 * time.Second}, o.handshakes)
}

// The wire keeps the same list of watches as zk.Conn does.
func TestLineKeepsTheWatches(t *testing.T) {
	all := []WatchKey{{"/d", core.WatchData}, {"/e", core.WatchData}, {"/n", core.WatchExists}, {"/c", core.WatchChildren}}
	for _, test := range []struct {
		name  string
		event []byte
		gone  []WatchKey // because of the event, which zk.Conn gets; nil: it does not
	}{
		{"none", nil, nil},
		{"changed", eventFrame(proto.EventDataChanged, "/d"), all[0:1]},
		{"deleted", eventFrame(proto.EventDeleted, "/c"), all[3:4]},
		{"created", eventFrame(proto.EventCreated, "/n"), all[2:3]},
		{"children", eventFrame(proto.EventChildrenChanged, "/c"), all[3:4]},
		{"of another kind", eventFrame(proto.EventChildrenChanged, "/d"), nil},
		{"of another znode", eventFrame(proto.EventDeleted, "/other"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			frames := [][]byte{
				handshakeFrame(7), dataFrame(1, 9), statFrame(2, 9), answerFrame(3, 9, proto.CodeNoNode),
				childrenFrame(4, 9), dataFrame(5, 9), answerFrame(6, 9, proto.CodeNoNode),
				answerFrame(7, 9, proto.CodeNoNode), answerFrame(8, 9, proto.CodeOK),
			}
			l, _ := newLineReading(t, slices.Concat(append(slices.Clone(frames), test.event)...))
			if test.gone != nil {
				frames = append(frames, test.event)
			}
			handshake := make([]byte, len(handshakeFrame(7)))
			_, err := io.ReadFull(l, handshake)
			require.NoError(t, err)
			for _, request := range [][]byte{
				requestFrame(1, proto.OpGetData, "/d", true), requestFrame(2, proto.OpExists, "/e", true), requestFrame(3, proto.OpExists, "/n", true),
				requestFrame(4, proto.OpGetChildren2, "/c", true), requestFrame(5, proto.OpGetData, "/unwatched", false),
				requestFrame(6, proto.OpGetData, "/missing", true), requestFrame(7, proto.OpGetChildren, "/missing", true), requestFrame(8, proto.OpDelete, "/x", true),
			} {
				n, err := l.Write(request)
				require.NoError(t, err)
				require.Len(t, request, n)
			}
			rest, err := io.ReadAll(l)
			require.NoError(t, err)
			require.Equal(t, slices.Concat(frames[1:]...), rest)
			want := map[WatchKey]struct{}{}
			for _, key := range all {
				if !slices.Contains(test.gone, key) {
					want[key] = struct{}{}
				}
			}
			require.Equal(t, want, l.wire.watches)
			require.Empty(t, l.watchRequests)
		})
	}
}

// completeFrames returns how many bytes at the beginning of in are complete frames.
func completeFrames(in []byte) int {
	complete := 0
	for rest := in; len(rest) >= 4; {
		size := 4 + int(binary.BigEndian.Uint32(rest))
		if size > len(rest) {
			break
		}
		complete, rest = complete+size, rest[size:]
	}
	return complete
}

// withoutOwnFrames returns in without the frames that answer own requests, and without the events of watches: zk.Conn
// has none.
func withoutOwnFrames(in []byte) (kept []byte) {
	rest := in
	for isFirst := true; len(rest) >= 8; isFirst = false {
		frame := 4 + int(binary.BigEndian.Uint32(rest))
		if frame > len(rest) {
			break
		}
		if isFirst || !isOwnXid(int32(binary.BigEndian.Uint32(rest[4:]))) && !isWatchEvent(rest[:frame]) {
			kept = append(kept, rest[:frame]...)
		}
		rest = rest[frame:]
	}
	return append(kept, rest...)
}

func isWatchEvent(frame []byte) bool {
	d := proto.NewDecoder(frame[4:])
	xid, _, _, event, _, _ := d.Int32(), d.Int64(), d.Int32(), d.Int32(), d.Int32(), d.String()
	return xid == proto.XidEvent && d.Err() == nil && d.Len() == 0 && len(core.FiredBy(event)) > 0
}

// A server may send any bytes: nothing panics, and zk.Conn gets the bytes unchanged, except for answers to own
// requests, events of watches that zk.Conn has not set and the end of a malformed frame. Each own request gets one answer.
func FuzzLine(f *testing.F) {
	f.Add(slices.Concat(handshakeFrame(7), answerFrame(1, 1, proto.CodeOK), eventFrame(proto.EventDeleted, "/a")), uint8(3))
	f.Add(slices.Concat(handshakeFrame(0), answerFrame(proto.XidPing, 0, proto.CodeOK)), uint8(255))
	f.Add(slices.Concat(handshakeFrame(0), []byte{0, 0, 0, 0}), uint8(40)) // malformed after an expired session
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1}, uint8(1))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}, uint8(4))
	f.Add(slices.Concat(handshakeFrame(7), []byte{0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff}), uint8(40))
	f.Add(slices.Concat(handshakeFrame(7), dataFrame(firstXid, 5), childrenFrame(firstXid-1, 6), answerFrame(1, 1, proto.CodeNoNode)), uint8(9))
	f.Add(slices.Concat(handshakeFrame(7), childrenFrame(firstXid-1, 6)), uint8(9))
	f.Fuzz(func(t *testing.T, in []byte, chunk uint8) {
		l, _ := newLineReading(t, in)
		for xid, op := range []int32{proto.OpGetData, proto.OpGetChildren2, proto.OpMulti, proto.OpGetACL, proto.OpExists} {
			_ = l.contact.sendRequest(int32(xid), op, sendNothing)
		}
		given := &answers{}
		own := []int32{
			proto.OpGetData, proto.OpGetChildren2, proto.OpMulti, proto.OpCreate, proto.OpCreate2, proto.OpExists, proto.OpSetData,
			proto.OpDelete, proto.OpSync, proto.OpCreateContainer,
		}
		for i, op := range own {
			_, _ = l.contact.sendInTurn([]sentFrame{ownFrame(firstXid-int32(i), op, receiver{given, strconv.Itoa(i)})}, sendNothing)
		}
		defer func() {
			_ = l.Close()
			require.Len(t, given.all(), len(own))
			paths := given.paths()
			slices.Sort(paths)
			require.Len(t, slices.Compact(paths), len(own), "one answer each")
		}()
		buffer := make([]byte, int(chunk)+1)
		var got []byte
		malformed := false
		for {
			n, err := l.Read(buffer)
			got = append(got, buffer[:n]...)
			if errors.Is(err, errNotZooKeeper) { // zk.Conn must get nothing of that
				require.Empty(t, got)
				return
			}
			if malformed = errors.Is(err, errMalformed); malformed {
				require.True(t, l.isOpen(), "a malformed handshake is errNotZooKeeper")
				break
			}
			if err != nil {
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed), "%v", err)
				break
			}
			require.LessOrEqual(t, len(got), len(in))
		}
		want := withoutOwnFrames(in)
		require.Equal(t, string(want[:len(got)]), string(got))
		if malformed {
			require.Less(t, len(got), len(in))
		} else {
			require.GreaterOrEqual(t, len(got), completeFrames(want), "zk.Conn gets every complete frame")
		}
		_, _ = l.Write(in)
	})
}
