package wire

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

var (
	// errNotZooKeeper: something other than ZooKeeper has answered the handshake.
	errNotZooKeeper = errors.New("the answer is not ZooKeeper's")
	// errMalformed: a server has sent a malformed frame after the handshake.
	errMalformed = errors.New("the server has sent a malformed frame")
	// errWatchesRefused: the server has refused to set the watches again after a reconnect.
	errWatchesRefused = errors.New("the server does not set the watches again")
	// errAbandoned: the connection was abandoned for another one.
	errAbandoned = errors.New("the server did not answer in time")
)

// Line is one connection of a wire. As any net.Conn under zk.Conn it has one reader and one writer
// at a time.
type Line struct {
	net.Conn
	wire            *Wire
	Address         string // as it was dialled
	hasFullPatience bool   // the handshake may take all of the owner's patience
	in              *bufio.Reader
	dialledAt       time.Time
	beganAt         time.Time // when the handshake began, by the owner's clock
	contact         *contact
	restore         watchRestore

	closeOnce    sync.Once
	closeDone    chan struct{} // closed by Close
	abandonDone  chan struct{} // closed by Abandon
	handOverDone chan struct{} // closed by handOver
	dropDone     chan struct{} // closed when an abandoned line is dropped

	// Of the reader alone.
	frameLeft    int    // bytes of the current frame that zk.Conn has not got yet
	isAnswer     bool   // the current frame answers a request
	isHandedOver bool   // handOver was called
	layout       layout // of the current frame
	onFrameRead  func() // takes effect once zk.Conn has got the current frame

	// Guarded by Wire.mu.
	state         lineState
	sessionID     int64
	readTimeout   time.Duration      // for how long zk.Conn waits for bytes; 0 stands for ever
	watchRequests map[int32]WatchKey // requests that ask for a watch, by xid
	credentialXid int32              // of the latest request that presents a credential
}

// lineState is how far a line has come.
type lineState struct {
	isHandshakeSent bool // the request of the handshake was sent
	isOpen          bool // the handshake was answered
	isClosing       bool // the session's end has been requested
}

// newLine returns the line over a connection whose handshake begins.
func newLine(w *Wire, conn net.Conn, address string, dialledAt time.Time, hasFullPatience bool) *Line {
	l := &Line{
		Conn: conn, wire: w, Address: address, hasFullPatience: hasFullPatience,
		in: bufio.NewReaderSize(conn, 16<<10), dialledAt: dialledAt, beganAt: w.owner.Now(),
		contact:   newContact(w.owner.Now, &w.isHolding),
		closeDone: make(chan struct{}), abandonDone: make(chan struct{}), handOverDone: make(chan struct{}), dropDone: make(chan struct{}),
		watchRequests: map[int32]WatchKey{},
	}
	l.restore.line = l
	return l
}

// Close may be called from anywhere, more than once. It does not wait for another Close. The socket
// of an abandoned line stays open: closeAbandoned closes it.
func (l *Line) Close() error {
	isFirst := false
	l.closeOnce.Do(func() {
		close(l.closeDone)
		isFirst = true
	})
	switch {
	case !isFirst:
		return net.ErrClosed
	case l.isAbandoned():
		return nil
	default:
		return l.Conn.Close()
	}
}

func (l *Line) readState() lineState {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.state
}

func (l *Line) isOpen() bool { return l.readState().isOpen }

func (l *Line) isClosing() bool { return l.readState().isClosing }

// SetReadDeadline is ignored during the handshake, which has a deadline of its own. The time counts
// from the last byte that has come, not from the call, because an answer may be long and the
// connection slow.
func (l *Line) SetReadDeadline(t time.Time) error {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.readTimeout = 0
	if !t.IsZero() {
		l.readTimeout = time.Until(t)
	}
	if !l.state.isOpen || l.isAbandoned() {
		return nil
	}
	return l.Conn.SetReadDeadline(t)
}

// extendReadDeadline begins the time of SetReadDeadline anew, because bytes have come.
func (l *Line) extendReadDeadline() {
	l.contact.noteBytes()
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if l.readTimeout > 0 && l.state.isOpen && !l.isAbandoned() {
		_ = l.Conn.SetReadDeadline(time.Now().Add(l.readTimeout)) // the next read fails on a dead socket
	}
}

// SetWriteDeadline is ignored during the handshake, which has a deadline of its own.
func (l *Line) SetWriteDeadline(t time.Time) error {
	if !l.isOpen() {
		return nil
	}
	return l.Conn.SetWriteDeadline(t)
}

// Write sends one frame, because zk.Conn passes each in a single call. It never fails: a failure
// shows at the next read alone.
func (l *Line) Write(frame []byte) (int, error) {
	if !l.isOpen() {
		l.wire.mu.Lock()
		l.state.isHandshakeSent = true
		l.wire.mu.Unlock()
		_, _ = l.Conn.Write(frame)
		return len(frame), nil
	}
	xid, op := l.noteRequest(frame)
	if err := l.sendFrame(xid, op, frame); err != nil {
		_ = l.Close()
	} else if op == proto.OpSetWatches || op == proto.OpSetWatches2 {
		l.restore.noteSetWatches()
	}
	return len(frame), nil
}

// sendFrame sends a frame on an open line.
func (l *Line) sendFrame(xid, op int32, frame []byte) error {
	return l.contact.sendRequest(xid, op, func() error {
		if l.isAbandoned() {
			return net.ErrClosed
		}
		_, err := l.Conn.Write(frame)
		return err
	})
}

// Read returns the bytes of one frame at most.
func (l *Line) Read(p []byte) (int, error) {
	n, err := 0, errAbandoned
	isRestBuffered := l.frameLeft > 0 && l.in.Buffered() >= l.frameLeft
	if isRestBuffered || !l.isAbandoned() { // zk.Conn gets the rest of a frame that it has begun to read
		n, err = l.readFrame(p)
	}
	if err != nil && l.isAbandoned() {
		l.handOver()
		return 0, errAbandoned
	}
	if err != nil && !l.isOpen() {
		l.noteFailedHandshake(err)
	}
	return n, err
}

// noteFailedHandshake is called when the answer to the handshake did not come.
func (l *Line) noteFailedHandshake(err error) {
	l.wire.noteTimeout(l.Address, l.hasFullPatience, err)
	if l.readState().isHandshakeSent {
		l.wire.owner.OnLostHandshake(l.beganAt)
	}
	l.wire.noteFailure(l.Address, fmt.Errorf("handshake with %s: %w", l.RemoteAddr(), explainHangUp(err)))
}

func (l *Line) readFrame(p []byte) (int, error) {
	if l.frameLeft == 0 {
		if err := l.beginFrame(); err != nil {
			return 0, err
		}
	}
	n, err := l.in.Read(p[:min(len(p), l.frameLeft)])
	l.frameLeft -= n
	if l.isAnswer && l.frameLeft > 0 {
		l.extendReadDeadline()
	}
	if !l.layout.accept(p[:n]) {
		return 0, l.failMalformed()
	}
	if l.frameLeft == 0 && l.onFrameRead != nil {
		l.onFrameRead()
		l.onFrameRead = nil
	}
	return n, err
}

// finishHandshake ends the handshake. From here on the deadlines are zk.Conn's. id 0 stands for an
// expired session.
func (l *Line) finishHandshake(id int64, timeout time.Duration) {
	w := l.wire
	lifetime := w.noteHandshake(id, timeout, l.beganAt)
	l.contact.noteHandshake(l.beganAt, lifetime)
	period := w.owner.Period()
	w.mu.Lock()
	l.state.isOpen, l.sessionID, w.lastHandshakeTook = true, id, time.Since(l.dialledAt)
	if id != 0 {
		w.slowHandshakes = 0
	} else {
		clear(w.watches) // zk.Conn gives its watches up with the session
	}
	l.restore.holdAnswersLocked(period)
	if id != 0 && lifetime > 0 && !w.isClosed {
		w.tasks.Go(func() { l.sendPings(lifetime / zkutil.PingsPerTimeout) }) // ends with the line
	}
	w.mu.Unlock()
	_ = l.SetDeadline(time.Time{}) // the next read fails on a dead socket
}

// sendPings keeps the session active at the server. zk.Conn takes the answers for answers to its own
// pings.
func (l *Line) sendPings(interval time.Duration) {
	frame := []byte{0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, proto.OpPing} // length, xid −2, operation
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := l.sendFrame(proto.XidPing, proto.OpPing, frame); err != nil {
				return // zk.Conn notices by itself
			}
		case <-l.abandonDone:
			return
		case <-l.closeDone:
			return
		}
	}
}

// ProofLimit returns until when a committed write of this line proves the session, if it was sent at
// sentAt. That is the horizon after sentAt, or less because of a gap before the write.
func (l *Line) ProofLimit(sentAt time.Time, horizon, timeout time.Duration) time.Time {
	return l.contact.proofLimit(sentAt, horizon, timeout)
}
