package zkutil

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// scripted is a connection that has received some bytes and then ends.
type scripted struct {
	net.Conn
	in io.Reader
}

func (s scripted) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (s scripted) Close() error                     { return nil }
func (s scripted) SetDeadline(time.Time) error      { return nil }
func (s scripted) SetReadDeadline(time.Time) error  { return nil }
func (s scripted) SetWriteDeadline(time.Time) error { return nil }
func (s scripted) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// lineOver is a line that has received bytes; greetings collects its handshakes.
func lineOver(tb testing.TB, in []byte) (l *line, greetings *[]time.Duration) {
	tb.Helper()
	greetings = new([]time.Duration)
	w := &wire{
		dial: func(string, string, time.Duration) (net.Conn, error) {
			return scripted{in: bytes.NewReader(in)}, nil
		},
		now:      time.Now,
		period:   func() time.Duration { return time.Millisecond },
		patience: func() time.Duration { return time.Millisecond },
		isSaving: func() bool { return false },
		greeted: func(_ int64, timeout time.Duration, _ time.Time) time.Duration {
			*greetings = append(*greetings, timeout)
			return timeout
		},
		unanswered: func(time.Time) {},
		failed:     func(string, error) {},
		watches:    map[watchKey]struct{}{},
	}
	conn, err := w.Dial("tcp", "a:1", 0)
	require.NoError(tb, err)
	tb.Cleanup(w.shut)
	l, ok := conn.(*line)
	require.True(tb, ok)
	return l, greetings
}

// The frames below are as on the wire, each with its length in front.

func greeting(id int64) []byte {
	return proto.NewEncoder().Int32(0).Int32(4000).Int64(id).Buffer(make([]byte, 16)).Frame()
}

func answer(xid int32, zxid int64, code int32) []byte {
	return proto.NewEncoder().Int32(xid).Int64(zxid).Int32(code).Frame()
}

// childrenOf is the answer to a request for the children of a znode that has none.
func childrenOf(xid int32, zxid int64) []byte {
	return proto.NewEncoder().Raw(answer(xid, zxid, proto.CodeOK)[4:]).Strings(nil).Stat(zk.Stat{}).Frame()
}

// dataOf is the answer to a request for a znode's data.
func dataOf(xid int32, zxid int64) []byte {
	return proto.NewEncoder().Raw(answer(xid, zxid, proto.CodeOK)[4:]).Buffer(nil).Stat(zk.Stat{}).Frame()
}

// statOf is the answer to a request whether a znode is there.
func statOf(xid int32, zxid int64) []byte {
	return proto.NewEncoder().Raw(answer(xid, zxid, proto.CodeOK)[4:]).Stat(zk.Stat{}).Frame()
}

func eventOf(kind int32, path string) []byte {
	return proto.NewEncoder().Int32(proto.XidEvent).Int64(-1).Int32(proto.CodeOK).Int32(kind).Int32(3).String(path).Frame()
}

func ask(xid, op int32, path string, watch bool) []byte {
	return proto.NewEncoder().Int32(xid).Int32(op).String(path).Bool(watch).Frame()
}

func TestLineReadsTheTimeout(t *testing.T) {
	l, greetings := lineOver(t, greeting(7))
	got, err := io.ReadAll(l)
	require.NoError(t, err)
	require.Equal(t, greeting(7), got)
	require.Equal(t, []time.Duration{4 * time.Second}, *greetings)
}

// The wire keeps the same list of watches as zk.Conn does.
func TestLineKeepsTheWatches(t *testing.T) {
	all := []watchKey{{"/d", watchData}, {"/e", watchData}, {"/n", watchExists}, {"/c", watchChildren}}
	for _, test := range []struct {
		name  string
		event []byte
		gone  []watchKey
	}{
		{"none", nil, nil},
		{"changed", eventOf(proto.EventDataChanged, "/d"), all[0:1]},
		{"deleted", eventOf(proto.EventDeleted, "/c"), all[3:4]},
		{"created", eventOf(proto.EventCreated, "/n"), all[2:3]},
		{"children", eventOf(proto.EventChildrenChanged, "/c"), all[3:4]},
		{"of another kind", eventOf(proto.EventChildrenChanged, "/d"), nil},
		{"of another znode", eventOf(proto.EventDeleted, "/other"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			frames := [][]byte{
				greeting(7), dataOf(1, 9), statOf(2, 9), answer(3, 9, proto.CodeNoNode),
				childrenOf(4, 9), dataOf(5, 9), answer(6, 9, proto.CodeNoNode),
				answer(7, 9, proto.CodeNoNode), answer(8, 9, proto.CodeOK),
			}
			if test.event != nil {
				frames = append(frames, test.event)
			}
			l, _ := lineOver(t, slices.Concat(frames...))
			handshake := make([]byte, len(greeting(7)))
			_, err := io.ReadFull(l, handshake)
			require.NoError(t, err)
			for _, request := range [][]byte{
				ask(1, proto.OpGetData, "/d", true), ask(2, proto.OpExists, "/e", true), ask(3, proto.OpExists, "/n", true),
				ask(4, proto.OpGetChildren2, "/c", true), ask(5, proto.OpGetData, "/unwatched", false),
				ask(6, proto.OpGetData, "/missing", true), ask(7, proto.OpGetChildren, "/missing", true), ask(8, proto.OpDelete, "/x", true),
			} {
				n, err := l.Write(request)
				require.NoError(t, err)
				require.Len(t, request, n)
			}
			rest, err := io.ReadAll(l)
			require.NoError(t, err)
			require.Equal(t, slices.Concat(frames[1:]...), rest)
			want := map[watchKey]struct{}{}
			for _, key := range all {
				if !slices.Contains(test.gone, key) {
					want[key] = struct{}{}
				}
			}
			require.Equal(t, want, l.wire.watches)
			require.Empty(t, l.pending)
		})
	}
}

// Whatever a server sends, nothing panics, and zk.Conn gets the bytes as they are, but for
// the end of a frame that is none.
func FuzzLine(f *testing.F) {
	f.Add(slices.Concat(greeting(7), answer(1, 1, proto.CodeOK), eventOf(proto.EventDeleted, "/a")), uint8(3))
	f.Add(slices.Concat(greeting(0), answer(proto.XidPing, 0, proto.CodeOK)), uint8(255))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1}, uint8(1))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}, uint8(4))
	f.Add(slices.Concat(greeting(7), []byte{0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff}), uint8(40))
	f.Fuzz(func(t *testing.T, in []byte, chunk uint8) {
		l, greetings := lineOver(t, in)
		for xid, op := range []int32{proto.OpGetData, proto.OpGetChildren2, proto.OpMulti, proto.OpGetACL, proto.OpExists} {
			l.contact.inFlight = append(l.contact.inFlight, sentFrame{xid: int32(xid), op: op})
		}
		buffer := make([]byte, int(chunk)+1)
		var got []byte
		malformed := false
		for {
			n, err := l.Read(buffer)
			got = append(got, buffer[:n]...)
			if errors.Is(err, errNotZooKeeper) { // nothing of it may reach zk.Conn
				require.Empty(t, got)
				return
			}
			if malformed = errors.Is(err, errMalformed); malformed {
				require.NotEmpty(t, *greetings)
				break
			}
			if err != nil {
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed), "%v", err)
				break
			}
			require.LessOrEqual(t, len(got), len(in))
		}
		require.Equal(t, string(in[:len(got)]), string(got))
		whole := 0 // every complete frame has been handed out
		for rest := in; len(rest) >= 4; {
			size := 4 + int(binary.BigEndian.Uint32(rest))
			if size > len(rest) {
				break
			}
			whole, rest = whole+size, rest[size:]
		}
		if malformed {
			require.Less(t, len(got), len(in))
		} else {
			require.GreaterOrEqual(t, len(got), whole)
		}
		_, _ = l.Write(in)
	})
}
