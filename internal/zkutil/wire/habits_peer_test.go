package wire

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

const (
	askedTimeout   = 40 * time.Second // that zk.Conn asks for
	grantedTimeout = 4 * time.Second  // that handshakeFrame grants
	chosenServer   = "name/10.0.0.1:2181"
)

// peer plays the host provider, the dialer and the servers of a plain zk.Conn, and records what zk.Conn does.
type peer struct {
	*zk.Conn

	t       *testing.T
	events  <-chan zk.Event
	sockets chan *socket // of each dial

	mu          sync.Mutex // protects what is below
	journal     []string
	faults      []string // calls at a time when none is allowed
	logged      []string // the formats of the log's lines
	latest      *socket
	onEvent     func(zk.Event)
	onNext      func()
	isRoundOver bool // what Next returns as retryStart
	isOver      bool // every dial fails
}

// newPeer connects a zk.Conn. Its handshake is not answered yet.
func newPeer(t *testing.T) *peer {
	t.Helper()
	p := &peer{t: t, sockets: make(chan *socket, 100), onEvent: func(zk.Event) {}}
	conn, events, err := zk.Connect([]string{"a"}, askedTimeout, zk.WithHostProvider(p), zk.WithDialer(p.dial),
		zk.WithEventCallback(p.callBack), zk.WithLogger(p), zk.WithLogInfo(false), zk.WithMaxBufferSize(MaxFrame))
	require.NoError(t, err)
	p.Conn, p.events = conn, events
	t.Cleanup(p.end)
	return p
}

// end ends zk.Conn in one of its pauses, and fails the test if zk.Conn did something that the wire does not allow.
func (p *peer) end() {
	p.mu.Lock()
	p.isRoundOver, p.isOver, p.onEvent, p.onNext = true, true, func(zk.Event) {}, nil
	latest := p.latest
	p.mu.Unlock()
	closed := ask(func() error { p.Close(); return nil })
	if latest != nil {
		_ = latest.server.Close()
	}
	p.awaitEnd()
	require.NoError(p.t, <-closed)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(p.t, p.faults)
}

// awaitEnd waits for the end of zk.Conn's goroutine, which closes the channel of events.
func (p *peer) awaitEnd() {
	for range p.events { // the callback recorded them
	}
}

// Init is called by zk.Connect.
func (p *peer) Init(servers []string) error {
	p.note("init %v", servers)
	return nil
}

// Len is not called.
func (*peer) Len() int { return 1 }

// Next says where to dial, and whether to pause before.
func (p *peer) Next() (server string, retryStart bool) {
	p.note("next")
	p.mu.Lock()
	onNext := p.onNext
	p.mu.Unlock()
	if onNext != nil {
		onNext()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return chosenServer, p.isRoundOver
}

// Printf is called for each line of the log.
func (p *peer) Printf(format string, _ ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logged = append(p.logged, format)
}

// Connected is called after a handshake.
func (p *peer) Connected() { p.note("connected") }

func (p *peer) callBack(event zk.Event) {
	switch {
	case event.Type != zk.EventSession:
		p.note("%v %s %v", event.Type, event.Path, event.Err)
	case event.State == zk.StateHasSession:
		p.note("%v %d", p.State(), p.SessionID())
	default:
		p.note("%v", event.State)
	}
	p.mu.Lock()
	onEvent := p.onEvent
	p.mu.Unlock()
	onEvent(event)
}

// dial returns a new socket. Nothing may be left of the previous one.
func (p *peer) dial(network, server string, timeout time.Duration) (net.Conn, error) {
	p.note("dial %s %s %v", network, server, timeout)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isOver {
		return nil, net.ErrClosed
	}
	if p.latest != nil && p.latest.reading.Load()+p.latest.writing.Load() > 0 {
		p.faults = append(p.faults, "a dial before the last read and write have returned")
	}
	client, far := net.Pipe()
	p.latest = &socket{Conn: client, peer: p, server: far}
	p.sockets <- p.latest
	return p.latest, nil
}

func (p *peer) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.journal = append(p.journal, fmt.Sprintf(format, args...))
}

func (p *peer) fault(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, what)
}

// done returns what zk.Conn has done since the last call.
func (p *peer) done() (journal []string) {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	journal, p.journal = p.journal, nil
	return journal
}

// greet waits for a dial, and reads the handshake.
func (p *peer) greet() (s *socket, hello handshake) {
	p.t.Helper()
	s = <-p.sockets
	return s, s.readHandshake()
}

// accept is greet, and grants session 7.
func (p *peer) accept() *socket {
	p.t.Helper()
	s, _ := p.greet()
	s.send(handshakeFrame(7))
	synctest.Wait()
	return s
}

func (p *peer) setOnEvent(onEvent func(zk.Event)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onEvent = onEvent
}

// setOver makes each dial fail, after a pause.
func (p *peer) setOver(isOver bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isOver, p.isRoundOver = isOver, isOver
}

func (p *peer) setRoundOver(isRoundOver bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isRoundOver = isRoundOver
}

// holdNext makes Next wait until the returned channel is closed.
func (p *peer) holdNext() (mayReturn chan struct{}) {
	mayReturn = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onNext = func() { <-mayReturn }
	return mayReturn
}

// watch is watchPath for /w.
func (p *peer) watch(s *socket, op, code int32) (fired <-chan zk.Event) {
	p.t.Helper()
	return p.watchPath(s, "/w", op, code)
}

// watchPath makes zk.Conn ask for a watch, and answers with zxid 50 and the given code. The result is nil if zk.Conn has no watch then.
func (p *peer) watchPath(s *socket, path string, op, code int32) (fired <-chan zk.Event) {
	p.t.Helper()
	answer := ask(func() (err error) {
		switch op {
		case proto.OpGetData:
			_, _, fired, err = p.GetW(path)
		case proto.OpExists:
			_, _, fired, err = p.ExistsW(path)
		default:
			_, _, fired, err = p.ChildrenW(path)
		}
		return err
	})
	s.send(answerTo(op, s.expect(op), 50, code))
	if err := <-answer; code == proto.CodeOK {
		require.NoError(p.t, err)
	}
	return fired
}

// ask makes a request of zk.Conn.
func ask(request func() error) (answer <-chan error) {
	result := make(chan error, 1)
	go func() { result <- request() }()
	return result
}

// socket is a connection of zk.Conn. The test has the other end, which has no buffer, so a write returns after the other side
// read it.
type socket struct {
	net.Conn

	peer             *peer
	server           net.Conn
	reading, writing atomic.Int32
	hasWritten       atomic.Bool // a write returned

	mu          sync.Mutex // protects what is below
	writes      [][]byte
	readLimits  []time.Duration // of SetReadDeadline; 0: none
	writeLimits []time.Duration
}

func (s *socket) Read(p []byte) (int, error) {
	if s.reading.Add(1) > 1 {
		s.peer.fault("two reads at a time")
	}
	defer s.reading.Add(-1)
	if !s.hasWritten.Load() {
		s.peer.fault("a read before the handshake was written")
	}
	return s.Conn.Read(p)
}

func (s *socket) Write(p []byte) (int, error) {
	if s.writing.Add(1) > 1 {
		s.peer.fault("two writes at a time")
	}
	defer s.writing.Add(-1)
	defer s.hasWritten.Store(true)
	s.mu.Lock()
	s.writes = append(s.writes, slices.Clone(p))
	s.mu.Unlock()
	return s.Conn.Write(p)
}

func (s *socket) Close() error {
	s.peer.note("close")
	return s.Conn.Close()
}

func (s *socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	s.readLimits = append(s.readLimits, limitOf(t))
	s.mu.Unlock()
	return s.Conn.SetReadDeadline(t)
}

func (s *socket) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	s.writeLimits = append(s.writeLimits, limitOf(t))
	s.mu.Unlock()
	return s.Conn.SetWriteDeadline(t)
}

func limitOf(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Until(t)
}

// written returns zk.Conn's writes.
func (s *socket) written() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// limits returns the deadlines set by zk.Conn, and clears them.
func (s *socket) limits() (ofReads, ofWrites []time.Duration) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	ofReads, ofWrites = s.readLimits, s.writeLimits
	s.readLimits, s.writeLimits = nil, nil
	return ofReads, ofWrites
}

// handshake is zk.Conn's request for a session.
type handshake struct {
	Version   int32
	Zxid      int64
	TimeoutMS int32
	SessionID int64
	Password  string
}

func (s *socket) readHandshake() (h handshake) {
	s.peer.t.Helper()
	frame, err := readWhole(s.server)
	require.NoError(s.peer.t, err)
	d := proto.NewDecoder(frame[4:])
	h = handshake{d.Int32(), d.Int64(), d.Int32(), d.Int64(), string(d.Buffer())}
	require.NoError(s.peer.t, d.Err())
	require.Zero(s.peer.t, d.Len())
	return h
}

// next returns the next request, and the data after its operation.
func (s *socket) next() (xid, op int32, rest *proto.Decoder) {
	s.peer.t.Helper()
	frame, err := readWhole(s.server)
	require.NoError(s.peer.t, err)
	d := proto.NewDecoder(frame[4:])
	return d.Int32(), d.Int32(), d
}

// expect returns the xid of the next request, which is of the given kind.
func (s *socket) expect(op int32) (xid int32) {
	s.peer.t.Helper()
	xid, got, _ := s.next()
	require.Equal(s.peer.t, proto.OpName(op), proto.OpName(got))
	return xid
}

// watchRequest is what zk.Conn asks for after a reconnect.
type watchRequest struct {
	Zxid                  int64
	Data, Exist, Children []string
}

// expectSetWatches returns the next request, which has to be a setWatches, and answers it.
func (s *socket) expectSetWatches() (w watchRequest) {
	s.peer.t.Helper()
	return s.answerSetWatches(0, proto.CodeOK)
}

func (s *socket) answerSetWatches(zxid int64, code int32) (w watchRequest) {
	s.peer.t.Helper()
	xid, op, d := s.next()
	require.Equal(s.peer.t, proto.OpName(proto.OpSetWatches), proto.OpName(op))
	w = watchRequest{d.Int64(), d.Strings(), d.Strings(), d.Strings()}
	require.NoError(s.peer.t, d.Err())
	s.send(answerFrame(xid, zxid, code))
	return w
}

func (s *socket) send(frames ...[]byte) {
	s.peer.t.Helper()
	_, err := s.server.Write(slices.Concat(frames...))
	require.NoError(s.peer.t, err)
}

// drain reads what zk.Conn writes until the connection ends.
func (s *socket) drain() { _, _ = io.Copy(io.Discard, s.server) }

// hangUp ends the connection, once zk.Conn waits for a frame or a reader.
func (s *socket) hangUp() {
	synctest.Wait()
	_ = s.server.Close()
}

func pingAnswer(zxid int64) []byte { return answerFrame(proto.XidPing, zxid, proto.CodeOK) }

func watchEvent(kind int32, path string, zxid int64) []byte {
	return proto.NewEncoder().Int32(proto.XidEvent).Int64(zxid).Int32(0).Int32(kind).Int32(3).String(path).Frame()
}

// answerTo answers a request of zk.Conn's for a znode without data and children.
func answerTo(op, xid int32, zxid int64, code int32) []byte {
	e := proto.NewEncoder().Raw(answerFrame(xid, zxid, code)[4:])
	switch {
	case code != proto.CodeOK:
	case op == proto.OpGetData:
		e.Buffer(nil).Stat(zk.Stat{})
	case op == proto.OpExists:
		e.Stat(zk.Stat{})
	case op == proto.OpGetChildren2:
		e.Strings(nil).Stat(zk.Stat{})
	}
	return e.Frame()
}

// newMirror returns a line that only mirrors the watches of zk.Conn.
func newMirror(w *Wire) *Line {
	return &Line{wire: w, watchRequests: map[int32]WatchKey{}, credentials: map[int32]credential{}}
}

// watchesOf returns the request that must follow from a wire's recorded watches on /w.
func watchesOf(w *Wire) watchRequest {
	want := watchRequest{50, []string{}, []string{}, []string{}}
	for key := range w.watches {
		switch key.Kind {
		case core.WatchData:
			want.Data = append(want.Data, key.Path)
		case core.WatchExists:
			want.Exist = append(want.Exist, key.Path)
		case core.WatchChildren, setWatchesKind:
			want.Children = append(want.Children, key.Path)
		}
	}
	return want
}

// habit runs the test of one habit in virtual time, with a connection whose handshake was answered.
func habit(t *testing.T, test func(p *peer, s *socket)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		p := newPeer(t)
		s := p.accept()
		p.done()
		test(p, s)
	})
}
