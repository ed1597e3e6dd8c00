package zktest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// line is the server's side of one connection. Its reader takes frames off the wire
// even while nothing is answered, as a socket's buffer does. They wait in the inbox for
// the worker, which executes them; what the server sends waits in the outbox for the
// writer. Worker and writer live as long as they have something to do.
type line struct {
	srv    *Server
	server *member
	conn   net.Conn

	// Guarded by srv.mu.
	hailed  bool  // the handshake has come in
	claims  int64 // the session that it asks for, then the one it got
	greeted bool  // it has been answered
	session *session
	who     []identity
	watches map[watchKey]watchMode
	inbox   []*arrival
	backlog int // bytes in the inbox
	outbox  []byte
	held    []byte // what has to come after a delayed answer
	working bool   // there is a worker
	asking  bool   // it is with the rules, for as long as they like
	writing bool   // there is a writer
	waiting bool   // an answer is delayed, and everything behind it
	pending bool   // a write waits for its commit, and everything behind it
	stuck   bool   // a request gets no answer, so nothing behind it does
	hungUp  bool   // the client has closed its side, and all that it had sent is here
	deaf    bool   // the client can't be told anything any more
	last    bool   // nothing more is executed; it ends when the outbox is empty
	closed  bool
}

// full is how many bytes may wait in an inbox or an outbox before nothing more gets in.
const full = 4 << 20

// arrival is a frame, when it came in, and what is to happen to it.
type arrival struct {
	frame   []byte
	at      time.Time
	late    bool      // it came into a silence
	reached time.Time // when it got through; zero: not yet
	due     time.Time // when it is committed if it is a write
	heard   bool      // it has extended the session
	asked   bool      // what follows is known
	request Request
	fault   Fault
}

// carry serves a connection. Called under the lock.
func (s *Server) carry(m *member, conn net.Conn) {
	address, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		address = "127.0.0.1" // a pipe
	}
	l := &line{
		srv: s, server: m, conn: s.secure(conn),
		who: []identity{{"ip", address}}, watches: map[watchKey]watchMode{},
	}
	s.lines[l] = struct{}{}
	s.work.Go(l.receive) // until the connection ends; joined by Close
}

func (l *line) receive() {
	in := bufio.NewReaderSize(l.conn, 1<<10)
	for l.take(readFrame(in)) {
	}
}

// take puts a frame into the inbox, or notes that there will be no more.
func (l *line) take(frame []byte, err error) (more bool) {
	s := l.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		l.hungUp = true
		l.wake()
		return false
	}
	if !l.hailed {
		l.hailed = true
		l.claim(claimed(frame))
	}
	if l.last {
		return true
	}
	a := &arrival{frame: frame, at: time.Now(), late: l.silent()}
	l.reach(a)
	l.hear(a)
	l.inbox = append(l.inbox, a)
	l.backlog += len(frame)
	l.wake()
	for l.backlog > full && !l.closed {
		s.changed.Wait()
	}
	return true
}

// claim notes whose connection it is.
func (l *line) claim(session int64) {
	l.disclaim()
	l.claims = session
	if session != 0 {
		l.srv.claims[session] = append(l.srv.claims[session], l)
	}
}

func (l *line) disclaim() {
	all := l.srv.claims
	all[l.claims] = slices.DeleteFunc(all[l.claims], func(other *line) bool { return other == l })
	if len(all[l.claims]) == 0 {
		delete(all, l.claims)
	}
}

// readFrame allocates what has arrived, not what a length promises.
func readFrame(in *bufio.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	n := int32(binary.BigEndian.Uint32(head[:]))
	if n < 0 || n > proto.MaxFrame {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	if int(n) <= in.Size() {
		frame := make([]byte, n)
		_, err := io.ReadFull(in, frame)
		return frame, err
	}
	var frame bytes.Buffer
	_, err := io.CopyN(&frame, in, int64(n))
	return frame.Bytes(), err
}

// silent tells whether nothing passes at present. Called under the lock.
func (l *line) silent() bool {
	return l.server.frozen || l.srv.cut.concerns(l.claims) || l.server.cut.concerns(l.claims)
}

// hear notes a sign of life, once and when it gets through. Called under the lock.
func (l *line) hear(a *arrival) {
	if !a.heard && l.session != nil && !l.silent() && !l.server.isolated() {
		a.heard = true
		l.srv.hear(l.session)
	}
}

// ready tells whether there is something for the worker. Called under the lock.
func (l *line) ready() bool {
	return len(l.inbox) > 0 && !l.closed && !l.last && !l.waiting && !l.pending && !l.silent() && len(l.outbox) <= full
}

// over tells whether the connection has come to its end. Called under the lock.
func (l *line) over() bool {
	if l.silent() { // who hung up has not been heard, and what he has sent will be
		return false
	}
	return l.hungUp && (len(l.inbox) == 0 || l.waiting || l.last) ||
		l.last && len(l.outbox) == 0 && !l.writing
}

// wake starts whoever has something to do. To call it too often does no harm. Called
// under the lock.
func (l *line) wake() {
	switch {
	case l.closed:
		return
	case l.over():
		l.close()
		return
	case !l.working && l.ready():
		l.working = true
		l.srv.work.Go(l.work) // until the inbox is empty or may not be worked on; joined by Close
	}
	if (!l.working || l.asking) && l.takePen() {
		l.srv.work.Go(func() { // until the outbox is empty; joined by Close
			l.srv.mu.Lock()
			defer l.srv.mu.Unlock()
			l.send()
		})
	}
}

// work executes what is in the inbox, and sends the answers if nobody else does.
func (l *line) work() {
	s := l.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	for l.ready() {
		a := l.inbox[0]
		switch {
		case l.overtakes():
			s.changed.Wait()
		case !a.asked:
			l.ask(a)
		case l.awaitCommit(a):
		default:
			l.inbox = l.inbox[1:]
			l.backlog -= len(a.frame)
			l.hear(a)
			l.serve(a)
		}
	}
	s.changed.Broadcast() // for the reader, and for later connections of the session
	l.working = false
	if l.takePen() {
		l.send()
	}
	l.wake()
}

// overtakes tells whether a handshake would get in before what its session has sent
// into a silence on earlier connections. Called under the lock.
func (l *line) overtakes() bool {
	lines := l.srv.claims[l.claims]
	if l.greeted || len(lines) < 2 {
		return false
	}
	return slices.ContainsFunc(lines[:slices.Index(lines, l)], func(earlier *line) bool {
		return earlier.ready() && earlier.inbox[0].late
	})
}

// ask asks the rules what is to happen. Called under the lock, which it gives up.
func (l *line) ask(a *arrival) {
	var ok bool
	if a.request, ok = l.request(a); !ok {
		l.finish()
		return
	}
	a.asked = true
	rules := l.srv.rules
	if len(rules) == 0 {
		return
	}
	l.asking = true
	l.wake() // somebody else has to write now
	func() {
		l.srv.mu.Unlock()
		defer l.srv.mu.Lock() // even if a rule ends the goroutine, as a failed require does
		a.fault = examine(rules, a.request)
	}()
	l.asking = false
}

// request says what a frame asks for. Not ok: it is none.
func (l *line) request(a *arrival) (Request, bool) {
	r := Request{Time: a.at, Server: l.server.address, Session: l.claims, Op: OpConnect}
	if !l.greeted {
		return r, true
	}
	d := proto.NewDecoder(a.frame)
	d.Int32()
	r.Op = Op(d.Int32())
	if d.Err() != nil {
		return r, false
	}
	switch r.Op {
	case OpPing, OpClose, OpAuth, OpSetWatches, OpSetWatches2:
		return r, true
	case OpMulti, OpMultiRead:
		d.Int32()
		d.Bool()
		d.Int32()
	}
	r.Path = d.String()
	return r, true
}
