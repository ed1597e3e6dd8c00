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

	"github.com/stretchr/testify/require"
)

func TestJuteString(t *testing.T) {
	for _, test := range []struct {
		in       []byte
		s, rest  string
		accepted bool
	}{
		{jute("abc"), "abc", "", true},
		{append(jute("abc"), 1), "abc", "\x01", true},
		{jute(""), "", "", true},
		{jute(-1), "", "", false}, // null
		{jute(4, int32(0))[:7], "", "", false},
		{jute(1 << 30), "", "", false},
		{[]byte{0, 0, 0}, "", "", false},
		{nil, "", "", false},
	} {
		s, rest, ok := juteString(test.in)
		require.Equal(t, test.accepted, ok, "%x", test.in)
		if ok {
			require.Equal(t, test.s, s)
			require.Equal(t, test.rest, string(rest))
		}
	}
}

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
		patience: func() time.Duration { return time.Millisecond },
		greeted:  func(_ int64, timeout time.Duration, _ time.Time) { *greetings = append(*greetings, timeout) },
		failed:   func(error) {},
		watches:  map[watchKey]struct{}{},
	}
	conn, err := w.Dial("tcp", "a:1", 0)
	require.NoError(tb, err)
	tb.Cleanup(w.shut)
	l, ok := conn.(*line)
	require.True(tb, ok)
	return l, greetings
}

// framed puts the length before each frame.
func framed(frames ...[]byte) (b []byte) {
	for _, frame := range frames {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(frame))), frame...)
	}
	return b
}

func greeting(id int64) []byte {
	return jute(int32(0), int32(4000), id, make([]byte, 16))
}

func TestLineReadsTheTimeout(t *testing.T) {
	l, greetings := lineOver(t, framed(greeting(7)))
	got, err := io.ReadAll(l)
	require.NoError(t, err)
	require.Equal(t, framed(greeting(7)), got)
	require.Equal(t, []time.Duration{4 * time.Second}, *greetings)
}

// The wire keeps the same list of watches as zk.Conn does.
func TestLineKeepsTheWatches(t *testing.T) {
	ask := func(xid, op int32, path string, watch bool) []byte { return framed(jute(xid, op, path, watch)) }
	answer := func(xid, code int32) []byte { return jute(xid, int64(9), code) }
	event := func(kind int32, path string) []byte { return jute(xidEvent, int64(-1), codeOK, kind, 3, path) }
	all := []watchKey{{"/d", watchData}, {"/e", watchData}, {"/n", watchExists}, {"/c", watchChildren}}
	for _, test := range []struct {
		name  string
		event []byte
		gone  []watchKey
	}{
		{"none", nil, nil},
		{"changed", event(eventDataChanged, "/d"), all[0:1]},
		{"deleted", event(eventDeleted, "/c"), all[3:4]},
		{"created", event(eventCreated, "/n"), all[2:3]},
		{"children", event(eventChildrenChanged, "/c"), all[3:4]},
		{"of another kind", event(eventChildrenChanged, "/d"), nil},
		{"of another znode", event(eventDeleted, "/other"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			frames := [][]byte{
				greeting(7), answer(1, codeOK), answer(2, codeOK), answer(3, codeNoNode), answer(4, codeOK),
				answer(5, codeOK), answer(6, codeNoNode), answer(7, codeNoNode), answer(8, codeOK),
			}
			if test.event != nil {
				frames = append(frames, test.event)
			}
			l, _ := lineOver(t, framed(frames...))
			handshake := make([]byte, len(framed(greeting(7))))
			_, err := io.ReadFull(l, handshake)
			require.NoError(t, err)
			for _, request := range [][]byte{
				ask(1, opGetData, "/d", true), ask(2, opExists, "/e", true), ask(3, opExists, "/n", true),
				ask(4, opGetChildren2, "/c", true), ask(5, opGetData, "/unwatched", false),
				ask(6, opGetData, "/missing", true), ask(7, opGetChildren, "/missing", true), ask(8, opDelete, "/x", true),
			} {
				n, err := l.Write(request)
				require.NoError(t, err)
				require.Len(t, request, n)
			}
			rest, err := io.ReadAll(l)
			require.NoError(t, err)
			require.Equal(t, framed(frames[1:]...), rest)
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

// Whatever a server sends, nothing panics, and zk.Conn gets the bytes as they are.
func FuzzLine(f *testing.F) {
	f.Add(framed(greeting(7), jute(1, int64(1), codeOK), jute(xidEvent, int64(-1), codeOK, eventDeleted, 3, "/a")), uint8(3))
	f.Add(framed(greeting(0), jute(-2, int64(0), codeOK)), uint8(255))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1}, uint8(1))
	f.Add(framed(nil, nil, []byte{1}), uint8(4))
	f.Fuzz(func(t *testing.T, in []byte, chunk uint8) {
		l, _ := lineOver(t, in)
		buffer := make([]byte, int(chunk)+1)
		var got []byte
		for {
			n, err := l.Read(buffer)
			got = append(got, buffer[:n]...)
			if errors.Is(err, errNotZooKeeper) { // nothing of it may reach zk.Conn
				size := binary.BigEndian.Uint32(in)
				require.True(t, size < 16 || size > 1<<10, "%d", size)
				require.Empty(t, got)
				return
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
		require.GreaterOrEqual(t, len(got), whole)
		_, _ = l.Write(in)
	})
}
