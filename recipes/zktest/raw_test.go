package zktest_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// patience bounds the wait for expected frames.
const patience = 20 * time.Second

// raw is a client that sends and reads frames, for tests of details that zk.Conn hides.
type raw struct {
	t        testing.TB
	conn     net.Conn
	in       *bufio.Reader
	id       int64
	password []byte
	timeout  time.Duration
	xid      int32
	seen     int64 // the latest zxid
}

func newRaw(tb testing.TB, conn net.Conn) *raw {
	tb.Helper()
	tb.Cleanup(func() { _ = conn.Close() })
	return &raw{t: tb, conn: conn, in: bufio.NewReaderSize(conn, 1<<9), password: make([]byte, proto.PasswordLength)}
}

// session opens a session.
func session(tb testing.TB, conn net.Conn, timeout time.Duration) *raw {
	tb.Helper()
	c := newRaw(tb, conn)
	c.greet(timeout)
	require.NotZero(tb, c.id, "refused")
	return c
}

// again returns the session's next connection. Its id is 0 if the session is over.
func (c *raw) again(conn net.Conn) *raw {
	c.t.Helper()
	next := newRaw(c.t, conn)
	next.id, next.password, next.seen, next.xid = c.id, c.password, c.seen, c.xid
	next.greet(c.timeout)
	return next
}

// greet performs the handshake.
func (c *raw) greet(timeout time.Duration) {
	c.t.Helper()
	c.hail(timeout)
	c.welcome()
}

// hail sends the handshake request.
func (c *raw) hail(timeout time.Duration) {
	c.t.Helper()
	c.write(proto.NewEncoder().Int32(0).Int64(c.seen).Int32(int32(timeout.Milliseconds())).
		Int64(c.id).Buffer(c.password).Bool(false).Frame())
}

// welcome reads the answer to the handshake.
func (c *raw) welcome() {
	c.t.Helper()
	d := proto.NewDecoder(c.frame())
	d.Int32()
	c.timeout, c.id, c.password = time.Duration(d.Int32())*time.Millisecond, d.Int64(), d.Buffer()
	require.NoError(c.t, d.Err())
	if d.Len() > 0 { // a ClickHouse Keeper's answer ends before
		require.False(c.t, d.Bool())
	}
}

func (c *raw) write(b []byte) {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetWriteDeadline(time.Now().Add(patience)))
	_, err := c.conn.Write(b)
	require.NoError(c.t, err)
}

func (c *raw) frame() []byte {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(patience)))
	var length [4]byte
	_, err := io.ReadFull(c.in, length[:])
	require.NoError(c.t, err)
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err = io.ReadFull(c.in, frame)
	require.NoError(c.t, err)
	return frame
}

// reply is an answer or an event.
type reply struct {
	xid  int32
	zxid int64
	code int32
	body *proto.Decoder
}

func (c *raw) read() reply {
	c.t.Helper()
	d := proto.NewDecoder(c.frame())
	r := reply{d.Int32(), d.Int64(), d.Int32(), d}
	require.NoError(c.t, d.Err())
	c.seen = max(c.seen, r.zxid)
	return r
}

// request is a request to send.
type request struct {
	op   int32
	body []byte
}

// send sends requests at once.
func (c *raw) send(requests ...request) {
	c.t.Helper()
	c.write(c.encode(requests...))
}

func (c *raw) encode(requests ...request) (frames []byte) {
	for _, r := range requests {
		xid := int32(proto.XidPing)
		if r.op != proto.OpPing {
			c.xid++
			xid = c.xid
		}
		frames = append(frames, proto.NewEncoder().Int32(xid).Int32(r.op).Raw(r.body).Frame()...)
	}
	return frames
}

// call sends a request and reads the answer, which must be the next frame.
func (c *raw) call(r request) reply {
	c.t.Helper()
	c.send(r)
	answer := c.read()
	if r.op != proto.OpPing {
		require.Equal(c.t, c.xid, answer.xid)
	}
	return answer
}

// did calls, and requires success.
func (c *raw) did(r request) reply {
	c.t.Helper()
	answer := c.call(r)
	require.Equal(c.t, "ok", proto.CodeName(answer.code))
	return answer
}

// event reads an event.
func (c *raw) event() (kind, path string) {
	c.t.Helper()
	r := c.read()
	require.EqualValues(c.t, proto.XidEvent, r.xid, "an answer came, not an event")
	kind = proto.EventName(r.body.Int32())
	r.body.Int32()
	return kind, r.body.String()
}

// silence is the time without a frame that counts as silence.
const silence = 40 * time.Millisecond

// hears reports whether anything arrives soon, including the end of the connection.
func (c *raw) hears() bool {
	_ = c.conn.SetReadDeadline(time.Now().Add(silence)) // fails on a closed pipe
	_, err := c.in.Peek(1)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// hearsNothing requires that nothing arrives.
func (c *raw) hearsNothing() {
	c.t.Helper()
	require.False(c.t, c.hears(), "something came")
}

// end requires that the connection ends without another frame.
func (c *raw) end() {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience)) // fails on a closed pipe
	b, err := c.in.Peek(1)
	require.Error(c.t, err, "came: %x", b)
	require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded)
}

func ping() request { return request{op: proto.OpPing} }

func closing() request { return request{op: proto.OpCloseSession} }

func create(path string, flags int32) request {
	return request{proto.OpCreate, proto.NewEncoder().String(path).Buffer([]byte("x")).
		ACL(zk.WorldACL(zk.PermAll)).Int32(flags).Body()}
}

func ttl(path string, d time.Duration) request {
	return request{proto.OpCreateTTL, proto.NewEncoder().String(path).Buffer(nil).
		ACL(zk.WorldACL(zk.PermAll)).Int32(proto.FlagTTL).Int64(d.Milliseconds()).Body()}
}

func container(path string) request {
	r := create(path, proto.FlagContainer)
	r.op = proto.OpCreateContainer
	return r
}

func remove(path string) request {
	return request{proto.OpDelete, proto.NewEncoder().String(path).Int32(-1).Body()}
}

func set(path, data string) request {
	return request{proto.OpSetData, proto.NewEncoder().String(path).Buffer([]byte(data)).Int32(-1).Body()}
}

func get(path string, watch bool) request {
	return request{proto.OpGetData, proto.NewEncoder().String(path).Bool(watch).Body()}
}

func exists(path string, watch bool) request {
	return request{proto.OpExists, proto.NewEncoder().String(path).Bool(watch).Body()}
}

func list(path string, watch bool) request {
	return request{proto.OpGetChildren, proto.NewEncoder().String(path).Bool(watch).Body()}
}

func syncing(path string) request {
	return request{proto.OpSync, proto.NewEncoder().String(path).Body()}
}

func auth(scheme, credentials string) request {
	return request{proto.OpAuth, proto.NewEncoder().Int32(0).String(scheme).Buffer([]byte(credentials)).Body()}
}

func multi(parts ...[]byte) request {
	return request{proto.OpMulti, append(bytes.Join(parts, nil), proto.NewEncoder().Int32(-1).Bool(true).Int32(-1).Body()...)}
}

func reads(parts ...[]byte) request { return request{proto.OpMultiRead, multi(parts...).body} }

func part(r request) []byte {
	return proto.NewEncoder().Int32(r.op).Bool(false).Int32(-1).Raw(r.body).Body()
}

func check(path string) request {
	return request{proto.OpCheck, proto.NewEncoder().String(path).Int32(-1).Body()}
}
