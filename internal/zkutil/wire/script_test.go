package wire

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// script is a line of a test, and the server behind it, which the test plays. zk.Conn's reader is
// readAll.
type script struct {
	*Line

	t      *testing.T
	server net.Conn
	owner  *testOwner
	read   chan []byte // the frames read by zk.Conn
	ended  chan error  // the error of zk.Conn's reader
	answer *answers    // of the requests sent by send
}

// answers records the answers to requests, by the requests' paths.
type answers struct {
	mu  sync.Mutex // protects what is below
	got []named
}

type named struct {
	path string
	Answer
}

// receiver is the Receiver of one request.
type receiver struct {
	all  *answers
	path string
}

func (r receiver) Receive(a Answer) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	r.all.got = append(r.all.got, named{r.path, a})
}

// all returns the answers so far, in their order.
func (a *answers) all() []named {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]named(nil), a.got...)
}

// paths returns the paths of the requests that were answered, in the order of the answers.
func (a *answers) paths() (paths []string) {
	for _, n := range a.all() {
		paths = append(paths, n.path)
	}
	return paths
}

// errs returns the errors of the answers.
func (a *answers) errs() (errs []error) {
	for _, n := range a.all() {
		errs = append(errs, n.Err)
	}
	return errs
}

// dialScript returns a line of w whose handshake is not answered yet. The test is the server at the other end of a
// pipe without a buffer, so a write blocks until the other side reads.
func dialScript(t *testing.T, o *testOwner) *script {
	t.Helper()
	client, server := net.Pipe()
	w := newTestWire(t, o, client)
	return dialAgain(t, w, o, server)
}

func dialAgain(t *testing.T, w *Wire, o *testOwner, server net.Conn) *script {
	t.Helper()
	conn, err := w.Dial("tcp", "a:1", 0)
	require.NoError(t, err)
	s := &script{Line: conn.(*Line), t: t, server: server, owner: o, read: make(chan []byte, 1000), ended: make(chan error, 1), answer: &answers{}}
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// openScript returns a line whose handshake was answered.
func openScript(t *testing.T) *script {
	t.Helper()
	s := dialScript(t, &testOwner{period: time.Second, patience: time.Minute})
	s.open()
	return s
}

// open answers the handshake, and starts zk.Conn's reader. No ping precedes the first write, as if the server answered another
// frame before.
func (s *script) open() {
	s.t.Helper()
	go s.readAll()
	s.deliver(handshakeFrame(7))
	require.Equal(s.t, handshakeFrame(7), <-s.read)
	s.contact.mu.Lock()
	defer s.contact.mu.Unlock()
	now, ping := s.contact.now(), []core.Frame{{XID: proto.XidPing, Op: proto.OpPing}}
	s.contact.record.OnSend(now, false, ping)
	s.contact.record.OnAnswer(now, false, proto.XidPing, proto.CodeOK)
}

// beQuiet makes the line one on which nothing was sent for an hour.
func (s *script) beQuiet() {
	s.contact.mu.Lock()
	defer s.contact.mu.Unlock()
	now := s.contact.now()
	s.contact.record.OnSent(now, now.Add(-time.Hour), nil)
}

// sendNothing is a send to a server whose answers the test plays.
func sendNothing(bool) error { return nil }

// readAll reads frames as zk.Conn does, until the line ends.
func (s *script) readAll() {
	for {
		frame, err := readWhole(s.Line)
		if err != nil {
			s.ended <- err
			return
		}
		s.read <- frame
	}
}

// readWhole reads a frame, its length included.
func readWhole(from io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	frame := append(head, make([]byte, proto.NewDecoder(head).Int32())...)
	_, err := io.ReadFull(from, frame[4:])
	return frame, err
}

// deliver sends bytes of the server.
func (s *script) deliver(frames ...[]byte) {
	s.t.Helper()
	require.NoError(s.t, s.server.SetWriteDeadline(time.Now().Add(time.Hour)))
	for _, frame := range frames {
		_, err := s.server.Write(frame)
		require.NoError(s.t, err)
	}
}

// next returns the xid, the operation and the path of the next request that reaches the server.
func (s *script) next() (xid, op int32, path string) {
	s.t.Helper()
	frame, err := readWhole(s.server)
	require.NoError(s.t, err)
	d := proto.NewDecoder(frame[4:])
	xid, op = d.Int32(), d.Int32()
	if op == proto.OpAuth {
		d.Int32()
	}
	return xid, op, d.String()
}

// ask sends reads of znodes together.
func (s *script) ask(paths ...string) { s.request(proto.OpGetData, paths...) }

// request sends requests of one kind together.
func (s *script) request(op int32, paths ...string) {
	var requests []*Request
	for _, path := range paths {
		requests = append(requests, &Request{Op: op, Path: path, To: receiver{s.answer, path}})
	}
	s.Send(requests...)
}

// isUnsent and isUnanswered classify the answer to a request that the server did not answer.
func isUnsent(err error) bool     { return errors.Is(err, zk.ErrNoServer) }
func isUnanswered(err error) bool { return errors.Is(err, zk.ErrConnectionClosed) }

// redial dials anew, and returns the next line, whose handshake was not yet answered.
func (s *script) redial() *script {
	s.t.Helper()
	client, server := net.Pipe()
	s.owner.conn = client
	return dialAgain(s.t, s.wire, s.owner, server)
}

// reconnect ends the line, and returns the next one, whose handshake was answered.
func (s *script) reconnect() *script {
	s.t.Helper()
	_ = s.Close()
	next := s.redial()
	next.open()
	return next
}
