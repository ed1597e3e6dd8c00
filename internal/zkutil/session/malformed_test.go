package session_test

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// mangled is the net.Conn of a client that gets frames in another form. mangle gets the body of each frame with the
// operation that it answers, and returns the bytes to read instead, length included, or nil for the frame as it is.
type mangled struct {
	net.Conn
	mangle func(op int32, body []byte) []byte
	rest   []byte // of a frame, of the reader

	mu     sync.Mutex // protects what is below
	opened bool
	asked  map[int32]int32 // operations by xid
}

// mangle makes all connections of a dialer mangled ones.
func mangle(dial zk.Dialer, change func(op int32, body []byte) []byte) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &mangled{Conn: conn, mangle: change, asked: map[int32]int32{}}, nil
	}
}

func (m *mangled) Write(frame []byte) (int, error) {
	m.mu.Lock()
	for _, request := range fixture.Frames(frame) {
		d := proto.NewDecoder(request[4:])
		if m.opened {
			m.asked[d.Int32()] = d.Int32()
		}
		m.opened = true
	}
	m.mu.Unlock()
	return m.Conn.Write(frame)
}

func (m *mangled) Read(p []byte) (int, error) {
	if len(m.rest) == 0 {
		frame, err := readFrame(m.Conn)
		if err != nil {
			return 0, err
		}
		m.mu.Lock()
		op := int32(proto.OpCreateSession)
		if len(m.asked) > 0 {
			op = m.asked[int32(binary.BigEndian.Uint32(frame[4:]))]
		}
		m.mu.Unlock()
		m.rest = frame
		if other := m.mangle(op, frame[4:]); other != nil {
			m.rest = other
		}
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// framed is a body with its length in front.
func framed(body []byte) []byte { return proto.NewEncoder().Raw(body).Frame() }

// lengthAt replaces the number at an offset of a copy.
func lengthAt(body []byte, at int, number uint32) []byte {
	body = slices.Clone(body)
	binary.BigEndian.PutUint32(body[at:], number)
	return body
}

// A server may send any bytes. zk.Conn, which would panic or ask for gigabytes, gets none of them. The connection ends,
// and the next one serves.
func TestMalformedAnswerEndsTheConnection(t *testing.T) {
	const header = 16
	short := func([]byte) []byte { return []byte{0xff, 0xff, 0xff, 0xff} }
	huge := func(at int) func(body []byte) []byte {
		return func(body []byte) []byte { return lengthAt(body, at, 0x7ffffff0) }
	}
	null := func(at int) func(body []byte) []byte {
		return func(body []byte) []byte { return lengthAt(body, at, 0xffffffff) }
	}
	cutBy := func(n int) func(body []byte) []byte {
		return func(body []byte) []byte { return body[:len(body)-n] }
	}
	for name, tt := range map[string]struct {
		op     int32
		mangle func(body []byte) []byte
	}{
		"a frame of four bytes":                       {proto.OpGetData, short},
		"a frame of no byte":                          {proto.OpGetData, func([]byte) []byte { return nil }},
		"a ping's answer of fifteen bytes":            {proto.OpPing, cutBy(1)},
		"a frame of fifteen bytes":                    {proto.OpDelete, cutBy(1)},
		"data of two gigabytes":                       {proto.OpGetData, huge(header)},
		"data without a stat":                         {proto.OpGetData, cutBy(1)},
		"two billion children":                        {proto.OpGetChildren2, huge(header)},
		"a null list of children":                     {proto.OpGetChildren2, null(header)},
		"a child's name of two gigabytes":             {proto.OpGetChildren2, huge(header + 4)},
		"children without a stat":                     {proto.OpGetChildren2, cutBy(68)},
		"no path of a new znode":                      {proto.OpCreate2, cutBy(1)},
		"no body at all":                              {proto.OpCreate2, func(body []byte) []byte { return body[:header] }},
		"a Multi without an end":                      {proto.OpMulti, cutBy(9)},
		"a Multi with half an end":                    {proto.OpMulti, cutBy(6)},
		"a Multi of an unknown kind":                  {proto.OpMulti, func(body []byte) []byte { return lengthAt(body, header, 99) }},
		"a sync's path of two gigabytes":              {proto.OpSync, huge(header)},
		"an event without a path":                     {0, func([]byte) []byte { return deletionOf("")[:24] }},
		"an event with a path that is longer than it": {0, func([]byte) []byte { return lengthAt(deletionOf("/m"), 24, 3) }},
		"an event of a null path":                     {0, func([]byte) []byte { return lengthAt(deletionOf("/m"), 24, 0xffffffff) }},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				srv.Put("/m/child", nil)
				cfg := srv.Config(6 * time.Second)
				var times atomic.Int32 // counted by the readers of both connections
				cfg.Dialer = mangle(cfg.Dialer, func(op int32, body []byte) []byte {
					isMeant, most := op == tt.op, int32(3)
					if tt.op == 0 { // an event, ahead of an answer
						isMeant, most = op == proto.OpGetData, 1
					}
					if !isMeant || times.Add(1) > most {
						return nil
					}
					return framed(tt.mangle(body))
				})
				s := fixture.Connect(t, cfg)
				turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
				bubble.Pass(time.Second)
				_, _ = s.Request(t.Context(), wire.Request{Op: proto.OpSync, Path: "/m"})
				bubble.Pass(10 * time.Second)
				require.NotEmpty(t, turn)
				got := <-turn
				require.NoError(t, got.Err)
				require.NoError(t, got.Lease.Leave())
				require.Positive(t, times.Load())
				require.Greater(t, len(srv.Dialled()), 1, "the connection ended")
				bubble.Eventually(t, 10*time.Second, func() bool { return slices.Equal(srv.Children("/m"), []string{"child"}) })
			})
		})
	}
}

// The length of a frame may be any number, also one that has no successor where an int has 32 bits.
func TestFrameOfTwoGigabytesEndsTheConnection(t *testing.T) {
	for name, op := range map[string]int32{"the answer to the engine": proto.OpGetChildren2, "the answer to a ping of zk.Conn": proto.OpPing, "an event": 0} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				cfg := srv.Config(6 * time.Second)
				var isDone atomic.Bool
				cfg.Dialer = mangle(cfg.Dialer, func(answered int32, body []byte) []byte {
					isMeant := answered == op || op == 0 && answered == proto.OpGetChildren2
					if !isMeant || isDone.Swap(true) {
						return nil
					}
					if op == 0 {
						body = deletionOf("/m")
					}
					return append([]byte{0x7f, 0xff, 0xff, 0xff}, body...)
				})
				s := fixture.Connect(t, cfg)
				turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
				bubble.Pass(time.Minute)
				require.True(t, isDone.Load())
				got := <-turn
				require.NoError(t, got.Err)
				require.Greater(t, len(srv.Dialled()), 1, "the connection ended")
				_ = got.Lease.Leave() // perhaps the hold ended with a silent connection
			})
		})
	}
}

// The answer to the handshake, too, is what zk.Conn can make nothing of, or a timer of no
// length.
func TestMalformedHandshakeEndsTheConnection(t *testing.T) {
	const timeoutAt, passwordAt = 4, 16
	for name, change := range map[string]func(body []byte) []byte{
		"no password":                        func(body []byte) []byte { return body[:passwordAt] },
		"a password of two gigabytes":        func(body []byte) []byte { return lengthAt(body, passwordAt, 0x7ffffff0) },
		"a password longer than the frame":   func(body []byte) []byte { return lengthAt(body, passwordAt, 18) },
		"a session timeout of zero":          func(body []byte) []byte { return lengthAt(body, timeoutAt, 0) },
		"a session timeout below zero":       func(body []byte) []byte { return lengthAt(body, timeoutAt, 0xffffffff) },
		"a frame of fifteen bytes":           func(body []byte) []byte { return body[:15] },
		"something else of a megabyte":       func([]byte) []byte { return make([]byte, 1<<20) },
		"a frame of a length that is not so": func(body []byte) []byte { return body[:len(body)-4] },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				cfg := srv.Config(6 * time.Second)
				var isDone atomic.Bool
				cfg.Dialer = mangle(cfg.Dialer, func(op int32, body []byte) []byte {
					if op != proto.OpCreateSession || isDone.Swap(true) {
						return nil
					}
					return framed(change(body))
				})
				s := fixture.Connect(t, cfg)
				require.Equal(t, 6*time.Second, s.Timeout())
				require.Len(t, srv.Dialled(), 2)
				require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
			})
		})
	}
}

// readFrame returns a frame with its length before it.
func readFrame(from io.Reader) ([]byte, error) {
	frame := make([]byte, 4)
	if _, err := io.ReadFull(from, frame); err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
	_, err := io.ReadFull(from, frame[4:])
	return frame, err
}

// deletionOf is the event of a deletion, without the length in front.
func deletionOf(path string) []byte {
	return proto.NewEncoder().Int32(proto.XidEvent).Int64(-1).Int32(proto.CodeOK).Int32(proto.EventDeleted).Int32(3).String(path).Frame()[4:]
}
