package wire

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

var (
	// errNotZooKeeper: something other than ZooKeeper has answered the handshake.
	errNotZooKeeper = errors.New("the answer is not ZooKeeper's")
	// errMalformed: a server has sent a malformed frame after the handshake.
	errMalformed = errors.New("the server has sent a malformed frame")
	// errWatchesRefused: the server has refused to set the watches again after a reconnect.
	errWatchesRefused = errors.New("the server does not set the watches again")
	// errExpired: a server has refused a request because the session has expired, and has not ended the connection.
	errExpired = errors.New("the server says that the session has expired")
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
	out             outbox
	restore         watchRestore
	isPrompt        atomic.Bool // the writer has begun, and whoever sends may write: see writeAtOnce

	closeOnce       sync.Once
	closeDone       chan struct{} // closed by Close
	credentialsDone chan struct{} // closed when zk.Conn has presented its credentials again
	abandonDone     chan struct{} // closed by Abandon
	handOverDone    chan struct{} // closed by handOver
	dropDone        chan struct{} // closed when an abandoned line is dropped

	// Of the reader alone.
	frameLeft    int    // bytes of the current frame that zk.Conn has not got yet
	isAnswer     bool   // the current frame answers a request
	isHandedOver bool   // handOver was called
	layout       layout // of the current frame
	onFrameRead  func() // takes effect once zk.Conn has got the current frame
	body         []byte // a buffer for answers to the engine's own requests

	// Guarded by Wire.mu.
	state           lineState
	sessionID       int64
	readTimeout     time.Duration        // for how long zk.Conn waits for bytes; 0 stands for ever
	watchRequests   map[int32]WatchKey   // requests that ask for a watch, by xid
	credentials     map[int32]credential // requests that present a credential, by xid; "": not for the first time
	credentialsLeft []credential         // which zk.Conn has yet to present again
	isPresented     bool                 // credentialsDone is closed
	failure         error                // why the line has failed after the handshake; nil: it has not, or was closed
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
		contact: newContact(w.owner.Now, &w.isHolding), out: newOutbox(),
		closeDone: make(chan struct{}), credentialsDone: make(chan struct{}),
		abandonDone: make(chan struct{}), handOverDone: make(chan struct{}), dropDone: make(chan struct{}),
		watchRequests: map[int32]WatchKey{}, credentials: map[int32]credential{},
	}
	l.restore.line = l
	return l
}

// Close may be called more than once, from anywhere but under a lock that a Receiver takes. It does not
// wait for another Close. The socket of an abandoned line stays open: closeAbandoned closes it.
func (l *Line) Close() error {
	isFirst := false
	l.closeOnce.Do(func() {
		close(l.closeDone)
		isFirst = true
	})
	if isFirst {
		l.failOwn()
	}
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

// Write sends one frame, because zk.Conn passes each in a single call. It never fails: a failure
// shows at the next read alone.
func (l *Line) Write(frame []byte) (int, error) {
	if !l.isOpen() {
		l.wire.mu.Lock()
		l.state.isHandshakeSent = true
		lastZxid := l.wire.lastZxid
		l.wire.mu.Unlock()
		_, _ = l.Conn.Write(withLastZxid(frame, lastZxid))
		return len(frame), nil
	}
	xid, op := l.noteRequest(frame)
	err := l.sendFrame(xid, op, frame)
	switch {
	case err != nil:
		l.failWith(err)
	case op == proto.OpSetWatches, op == proto.OpSetWatches2:
		l.restore.noteSetWatches()
		fallthrough
	default:
		l.noteSent(op, frame)
	}
	return len(frame), nil
}

// sendFrame sends a frame of zk.Conn's on an open line.
func (l *Line) sendFrame(xid, op int32, frame []byte) error {
	return l.contact.sendRequest(xid, op, func() error { return l.writeBytes(frame) })
}

// Read returns the bytes of one frame at most.
func (l *Line) Read(p []byte) (int, error) {
	n, err := 0, errAbandoned
	isRestBuffered := l.frameLeft > 0 && l.in.Buffered() >= l.frameLeft
	if isRestBuffered || !l.isAbandoned() { // zk.Conn gets the rest of a frame that it has begun to read
		n, err = l.readFrame(p)
	}
	if err != nil && l.isAbandoned() {
		l.noteLineFailure(errAbandoned)
		l.handOver()
		return 0, errAbandoned
	}
	switch {
	case err == nil:
	case l.isOpen():
		l.noteLineFailure(err)
	default:
		l.noteFailedHandshake(err)
	}
	return n, err
}

// noteLineFailure notes why an open line has failed. The first reason counts: the later ones follow from it.
func (l *Line) noteLineFailure(err error) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if l.failure == nil {
		l.failure = err
	}
}

// failWith ends the line because of a failure. As for Close, the caller holds no lock that a Receiver takes.
func (l *Line) failWith(err error) {
	l.noteLineFailure(err)
	_ = l.Close()
}

// Failure returns why the line has failed after its handshake, nil if it has not.
func (l *Line) Failure() error {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.failure
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
		w.lastZxid = 0
	}
	l.credentialsLeft = slices.Clone(w.credentials)
	l.releaseOwnLocked()
	l.restore.holdAnswersLocked(period)
	if id != 0 && lifetime > 0 && !w.isClosed {
		w.tasks.Go(func() { l.sendPings(lifetime) }) // ends with the line
		w.tasks.Go(l.writeOwn)                       // as well
		l.isPrompt.Store(writesPromptly(l.Conn))
	}
	w.mu.Unlock()
	_ = l.SetDeadline(time.Time{}) // the next read fails on a dead socket
}

// ProofLimit returns until when a committed write of this line proves the session, if it was sent at
// sentAt. That is the horizon after sentAt, or less because of a gap before the write.
func (l *Line) ProofLimit(sentAt time.Time, horizon, timeout time.Duration) time.Time {
	return l.contact.proofLimit(sentAt, horizon, timeout)
}
