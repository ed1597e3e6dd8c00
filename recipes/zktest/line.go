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

	"github.com/zkrecipes/zkrecipes/internal/digestmd5"
	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// line is the server's side of one connection. Its reader takes frames off the wire even
// while nothing is answered, as a socket's buffer does. Frames wait in the inbox for the
// worker, which executes them; answers and events wait in the outbox for the writer.
// Worker and writer run only while the inbox or the outbox holds work.
type line struct {
	srv    *Server
	server *member
	conn   net.Conn

	// Guarded by srv.mu.
	hailed  bool  // the handshake arrived
	claims  int64 // the session id in the handshake, then the assigned session
	greeted bool  // the handshake is answered
	session *session
	timeout time.Duration // granted on this connection
	who     []identity
	login   *digestmd5.Server // a login over SASL that is under way; nil: none
	watches map[watchKey]watchMode
	inbox   []*arrival
	backlog int // total size of the inbox in bytes
	outbox  []byte
	held    []byte // frames to be sent after a delayed answer
	working bool   // the worker is running
	asking  bool   // the worker is calling rules, which may block
	writing bool   // the writer is running
	waiting bool   // a delayed answer holds up all later ones
	pending bool   // a write waiting for its commit holds up all later requests
	stuck   bool   // a request that gets no answer blocks all later ones
	hungUp  bool   // the client closed its side, and everything it sent is in the inbox
	deaf    bool   // the connection no longer takes data for the client
	last    bool   // nothing more is executed; the connection ends when the outbox is empty
	closed  bool
}

// full limits the bytes in an inbox or an outbox; above it, nothing more is accepted.
const full = 4 << 20

// arrival is a received frame, with its times and its fault.
type arrival struct {
	frame   []byte
	at      time.Time
	late    bool      // the frame arrived during a silence
	reached time.Time // when the frame got through to the server; zero if not yet
	due     time.Time // when the request is committed if it is a write
	heard   bool      // the frame extended the session
	asked   bool      // request and fault are set
	request Request
	fault   Fault
}

// carry serves a connection to the server. Called under the lock.
func (m *member) carry(conn net.Conn) {
	address, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		address = "127.0.0.1" // a pipe
	}
	s := m.srv
	l := &line{
		srv: s, server: m, conn: s.cfg.secure(conn),
		who: []identity{{"ip", address}}, watches: map[watchKey]watchMode{},
	}
	s.lines[l] = struct{}{}
	s.work.Go(l.receive) // until the connection ends; joined by Close
}

func (l *line) receive() {
	in := bufio.NewReaderSize(l.conn, 1<<10)
	if l.answerWord(in) {
		return
	}
	for l.take(readFrame(in)) {
	}
}

// take puts a frame into the inbox, or records the end of the input.
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

// claim records the session that the connection belongs to.
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

// readFrame reads a frame. It allocates memory for arrived bytes, not for the announced length.
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

// silent reports whether nothing passes at present. Called under the lock.
func (l *line) silent() bool {
	return l.server.frozen || l.srv.cut.concerns(l.claims) || l.server.cut.concerns(l.claims)
}

// hear records a sign of life, once, when the frame gets through. Called under the lock.
func (l *line) hear(a *arrival) {
	if !a.heard && l.session != nil && !l.silent() && !l.server.isolated() && l.srv.cfg.traits.extends(a.frame) {
		a.heard = true
		l.server.hear(l.session, l.timeout)
	}
}

// ready reports whether the worker has a frame to execute. Called under the lock.
func (l *line) ready() bool {
	return len(l.inbox) > 0 && !l.closed && !l.last && !l.waiting && !l.pending && !l.silent() && len(l.outbox) <= full
}

// over reports whether the connection is to be closed. Called under the lock.
func (l *line) over() bool {
	if l.silent() { // a hang-up in a silence did not arrive yet, and the frames sent before it will be executed
		return false
	}
	return l.hungUp && (len(l.inbox) == 0 || l.waiting || l.last) ||
		l.last && len(l.outbox) == 0 && !l.writing
}

// wake closes the connection if it is over, and otherwise starts the worker and the
// writer if they have work. Extra calls are harmless. Called under the lock.
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

// work executes the frames in the inbox, and sends the answers unless a writer is
// running.
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

// overtakes reports whether executing the handshake now would overtake requests that its
// session sent into a silence on earlier connections. Called under the lock.
func (l *line) overtakes() bool {
	lines := l.srv.claims[l.claims]
	if l.greeted || len(lines) < 2 {
		return false
	}
	return slices.ContainsFunc(lines[:slices.Index(lines, l)], func(earlier *line) bool {
		return earlier.ready() && earlier.inbox[0].late
	})
}

// ask sets the request and the fault of a. Called under the lock, which it releases while
// the rules run.
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
	l.wake() // the worker can't write while the rules run
	func() {
		l.srv.mu.Unlock()
		defer l.srv.mu.Lock() // even if a rule ends the goroutine, as a failed require does
		a.fault = examine(rules, a.request)
	}()
	l.asking = false
}

// request decodes the request in a frame; false means that the frame is malformed.
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
	case OpPing, OpClose, OpAuth, OpSASL, OpSetWatches, OpSetWatches2, OpWhoAmI:
		return r, true
	case OpMulti, OpMultiRead:
		d.Int32()
		d.Bool()
		d.Int32()
	}
	r.Path = d.String()
	return r, true
}

// push queues a frame for sending. Called under the lock.
func (l *line) push(frame []byte) {
	switch {
	case l.closed || l.last || l.hungUp || l.deaf:
	case l.waiting:
		l.held = append(l.held, frame...)
	default:
		l.outbox = append(l.outbox, frame...)
		l.wake()
	}
}

// notify sends a watch event. Called under the lock.
func (l *line) notify(e event) {
	const connected = 3
	if l.srv.losses.lose(l.claims) {
		return
	}
	l.push(header(proto.XidEvent, -1, proto.CodeOK).Int32(e.kind).Int32(connected).String(e.path).Frame())
}

func header(xid int32, zxid int64, code int32) *proto.Encoder {
	return proto.NewEncoder().Int32(xid).Int64(zxid).Int32(code)
}

// takePen makes the caller the writer if the outbox holds data and has no writer. Called
// under the lock.
func (l *line) takePen() bool {
	if l.writing || l.closed || l.silent() || len(l.outbox) == 0 {
		return false
	}
	l.writing = true
	return true
}

// send empties the outbox. Called under the lock, which it releases while it writes.
func (l *line) send() {
	for !l.closed && !l.silent() && len(l.outbox) > 0 {
		batch, pause := l.takeBatch()
		l.srv.mu.Unlock()
		if pause > 0 {
			<-time.After(pause)
		}
		_, err := l.conn.Write(batch)
		l.srv.mu.Lock()
		if err != nil {
			l.deaf, l.outbox = true, nil // the reader may still have input, and notices the end by itself
		}
		l.wake()
	}
	l.writing = false
	l.wake()
}

// pieceInterval is the time between two pieces on a slow connection.
const pieceInterval = 10 * time.Millisecond

// takeBatch takes the next bytes to send out of the outbox, and returns how long their
// transmission takes. Called under the lock.
func (l *line) takeBatch() (batch []byte, pause time.Duration) {
	rate, ok := l.srv.pace.limits[l.claims]
	if !ok {
		rate = l.srv.pace.bandwidth
	}
	batch = l.outbox
	if rate == 0 {
		l.outbox = nil
		return batch, 0
	}
	n := min(len(batch), max(1, rate/int(time.Second/pieceInterval)))
	l.outbox = batch[n:]
	return batch[:n:n], time.Duration(n) * time.Second / time.Duration(rate)
}

// finish closes the connection after the last queued byte. Called under the lock.
func (l *line) finish() {
	l.last = true
	l.wake()
}

// dismiss ends the connection as soon as its client can notice the end. Called under the
// lock.
func (l *line) dismiss() {
	if l.server.isolated() {
		return // an isolated server is not informed
	}
	l.leaveCommits()
	l.detach()
	l.inbox, l.outbox, l.held, l.backlog, l.last = nil, nil, nil, 0, true
	if !l.silent() {
		l.close()
	}
}

// retire ends a connection whose session moved to another server: executed requests and writes that wait for their
// commit are still answered, all other requests are not. Called under the lock.
func (l *line) retire() {
	if l.silent() || l.server.isolated() {
		l.dismiss()
		return
	}
	waiting := l.leaveCommits()
	l.detach()
	l.inbox, l.backlog = nil, 0
	if waiting == 0 {
		l.finish()
	}
}

// close ends the connection; unsent data is lost. Called under the lock.
func (l *line) close() {
	if l.closed {
		return
	}
	l.closed = true
	l.leaveCommits()
	_ = l.conn.Close()
	delete(l.srv.lines, l)
	l.disclaim()
	l.detach()
	l.srv.changed.Broadcast()
}

// detach removes the connection's watches and separates it from its session.
func (l *line) detach() {
	l.srv.watches.forget(l)
	if l.session != nil && l.session.line == l {
		l.session.line = nil
	}
	l.session = nil
}
