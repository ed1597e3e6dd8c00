package conformance_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conformance"
	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// serve starts a server and says how to reach it.
func serve(t *testing.T) conformance.Dial {
	t.Helper()
	server := zktest.NewServer(t, zktest.WithSessionTimeouts(time.Second, time.Minute), zktest.WithReapInterval(time.Hour))
	return func() (net.Conn, error) { return net.Dial("tcp", server.Addr()) }
}

// A single defect of a server is found, and the seed reproduces it.
func TestDiffFindsOneBrokenRule(t *testing.T) {
	for name, rule := range map[string]rule{
		"cversion after setData": func(op int32, reply []byte) []byte {
			if op == proto.OpSetData && code(reply) == proto.CodeOK {
				reply[16+39]++ // the last byte of the stat's cversion
			}
			return reply
		},
		"BadVersion of delete": func(op int32, reply []byte) []byte {
			if op == proto.OpDelete && code(reply) == proto.CodeBadVersion {
				setCode(reply, proto.CodeOK)
			}
			return reply
		},
		"zxid of NotEmpty": func(_ int32, reply []byte) []byte {
			if code(reply) == proto.CodeNotEmpty {
				reply[11]--
			}
			return reply
		},
		"zxid of what has an own xid": func(_ int32, reply []byte) []byte {
			if xid := int32(binary.BigEndian.Uint32(reply)); xid < event {
				reply[11]--
			}
			return reply
		},
		"the last result of a multiRead": func(op int32, reply []byte) []byte {
			if last := len(reply) - 9 - 1; op == proto.OpMultiRead && last > 16 { // before the end mark
				reply[last] ^= 1
			}
			return reply
		},
		"child events": func(op int32, reply []byte) []byte {
			if op == event && reply[19] == proto.EventChildrenChanged {
				return nil
			}
			return reply
		},
	} {
		t.Run(name, func(t *testing.T) {
			const seed = 4711
			a, b := serve(t), twist(serve(t), rule)
			var found, again, shorter *conformance.DiffError
			require.ErrorAs(t, conformance.Diff(a, b, seed, 3000), &found)
			require.ErrorContains(t, found, fmt.Sprintf("seed %d, step %d:", seed, len(found.Steps)))
			require.ErrorAs(t, conformance.Diff(a, b, seed, 3000), &again)
			require.Equal(t, found, again)

			shorter = conformance.Shrink(a, b, found, 200)
			require.Less(t, len(shorter.Steps), 13)
			cases, err := conformance.ParseCases("", "== shorter\n"+shorter.Steps[0].Step.String())
			require.NoError(t, err)
			require.Len(t, cases, 1)
			t.Log("\n" + shorter.Script())
		})
	}
}

func TestDiffOfEqualServersFindsNothing(t *testing.T) {
	unchanged := func(_ int32, reply []byte) []byte { return reply }
	require.NoError(t, conformance.Diff(serve(t), twist(serve(t), unchanged), 4711, 3000))
}

// rule changes a reply, or takes it away by returning nil.
type rule func(op int32, reply []byte) []byte

// event stands for the operation of what is no reply.
const event = -1000

func code(reply []byte) int32 { return int32(binary.BigEndian.Uint32(reply[12:])) }

func setCode(reply []byte, code int32) { binary.BigEndian.PutUint32(reply[12:], uint32(code)) }

// twist puts a rule between a server and its clients.
func twist(dial conformance.Dial, r rule) conformance.Dial {
	return func() (net.Conn, error) {
		conn, err := dial()
		if err != nil {
			return nil, err
		}
		return &twisted{Conn: conn, rule: r, ops: map[int32]int32{proto.XidEvent: event}}, nil
	}
}

// twisted is a connection with a rule.
type twisted struct {
	net.Conn
	rule     rule
	greeted  bool   // by the server
	readable []byte // what is left of the last reply

	mu      sync.Mutex
	started bool            // the client sent its greeting; guarded by mu
	ops     map[int32]int32 // by xid; guarded by mu
}

func (c *twisted) Write(b []byte) (int, error) {
	c.note(b)
	return c.Conn.Write(b)
}

// CloseWrite signals the end of the client's data to the server.
func (c *twisted) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// note remembers the operations of requests, which are written frame by whole frame.
func (c *twisted) note(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(b) >= 4 {
		length := int(binary.BigEndian.Uint32(b))
		if length > len(b)-4 {
			return
		}
		d := proto.NewDecoder(b[4 : 4+length])
		if c.started {
			xid := d.Int32()
			c.ops[xid] = d.Int32()
		}
		c.started = true
		b = b[4+length:]
	}
}

func (c *twisted) Read(p []byte) (int, error) {
	for len(c.readable) == 0 {
		var length [4]byte
		if _, err := io.ReadFull(c.Conn, length[:]); err != nil {
			return 0, err
		}
		reply := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(c.Conn, reply); err != nil {
			return 0, err
		}
		if c.greeted {
			reply = c.rule(c.op(reply), reply)
		}
		c.greeted = true
		if reply != nil {
			c.readable = append(binary.BigEndian.AppendUint32(nil, uint32(len(reply))), reply...)
		}
	}
	n := copy(p, c.readable)
	c.readable = c.readable[n:]
	return n, nil
}

func (c *twisted) op(reply []byte) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops[proto.NewDecoder(reply).Int32()]
}
