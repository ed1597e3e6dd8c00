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
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

var (
	// errNotZooKeeper means that something other than ZooKeeper answered the handshake.
	errNotZooKeeper = errors.New("the answer is not in ZooKeeper's protocol")
	// errMalformed means that a server sent a malformed frame after the handshake.
	errMalformed = errors.New("the server sent a malformed frame")
	// errWatchesRefused means that the server refused to set the watches again after a reconnect.
	errWatchesRefused = errors.New("the server does not restore the watches")
	// errExpired means that a server refused a request because the session expired, but did not close the connection.
	errExpired = errors.New("the server reports that the session expired")
	// errLoginRequired means that a server refused a request, and hangs up, because it requires a login first.
	errLoginRequired = zkutil.Explained(errorOf(proto.CodeLoginRequired))
	// errCredentials means that a server did not answer all credentials that were presented again.
	errCredentials = errors.New("the server does not answer the credentials")
	// errHasLeft means that the connection was abandoned because the server is no longer in the ensemble.
	errHasLeft = errors.New("the server is no longer in the ensemble")
	// errAbandoned means that the connection was abandoned for another one.
	errAbandoned = errors.New("the server did not answer in time")
)

// Line is a connection of a wire. Like any net.Conn under zk.Conn, a Line has one reader and one writer at a
// time.
type Line struct {
	net.Conn
	wire     *Wire
	attempt  *dial.Attempt // the dial, and the handshake
	Server   string        // as returned by Next
	in       *bufio.Reader
	beganAt  time.Time // when the handshake began, by the owner's clock
	deadline time.Time // of the handshake, login included
	contact  *contact
	out      outbox
	claim    claim // of zk.Conn's handshake, which writes and reads in one goroutine
	restore  watchRestore
	isPrompt atomic.Bool // the writer is running, and senders may write with writeAtOnce

	closeOnce       sync.Once
	closeDone       chan struct{} // closed by Close
	credentialsDone chan struct{} // closed after zk.Conn presented its credentials again
	abandonDone     chan struct{} // closed by Abandon
	handOverDone    chan struct{} // closed by handOver
	dropDone        chan struct{} // closed when an abandoned line is dropped

	// Of the reader alone.
	frameLeft    int          // bytes of the current frame still to pass to zk.Conn
	isAnswer     bool         // the current frame answers a request
	isHandedOver bool         // handOver was called
	hasCommitted bool         // a write of the engine's own was served
	layout       proto.Layout // of the current frame
	onFrameRead  func()       // takes effect once zk.Conn has the current frame
	body         []byte       // a buffer for answers to the engine's own requests

	// Guarded by Wire.mu.
	state           lineState
	sessionID       int64
	readTimeout     time.Duration        // the time for which zk.Conn waits for bytes; 0: forever
	watchRequests   map[int32]WatchKey   // requests for a watch, by xid
	credentials     map[int32]credential // presented credentials, by xid; "" if not for the first time
	credentialsLeft []credential         // still to be presented again by zk.Conn
	isPresented     bool                 // credentialsDone is closed
	failure         error                // the reason of a failure after the handshake; nil: none, or closed
}

// lineState is the progress of a line.
type lineState struct {
	isOpen    bool  // the handshake was answered
	isClosing bool  // the session's end was requested
	closeXid  int32 // of that request
}

// newLine returns the line over a connection whose handshake begins.
func newLine(w *Wire, conn net.Conn, attempt *dial.Attempt) *Line {
	l := &Line{
		Conn: conn, wire: w, attempt: attempt, Server: attempt.Server(),
		in: bufio.NewReaderSize(conn, 16<<10), beganAt: w.owner.Now(),
		contact: newContact(w.owner.Now, &w.isHolding), out: newOutbox(),
		closeDone: make(chan struct{}), credentialsDone: make(chan struct{}),
		abandonDone: make(chan struct{}), handOverDone: make(chan struct{}), dropDone: make(chan struct{}),
		watchRequests: map[int32]WatchKey{}, credentials: map[int32]credential{},
	}
	l.restore.line = l
	return l
}

// Peer returns the server for an error: with the name if the name was resolved, else the socket's remote address,
// because the user's dialer may connect to another server.
func (l *Line) Peer() string {
	if l.attempt.IsResolved() {
		return l.Server
	}
	return l.RemoteAddr().String()
}

// Close may be called more than once, from anywhere but under a lock that a Receiver takes. Close does not wait
// for another Close. The socket of an abandoned line stays open until closeAbandoned.
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

// HasLeft reports whether the server left the ensemble, like [dial.Attempt.HasLeft].
func (l *Line) HasLeft() bool { return l.attempt.HasLeft() }

// Leave is Abandon for a server that left the ensemble.
func (l *Line) Leave() {
	l.noteLineFailure(errHasLeft)
	l.Abandon()
}

func (l *Line) readState() lineState {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.state
}

func (l *Line) isOpen() bool { return l.readState().isOpen }

func (l *Line) isClosing() bool { return l.readState().isClosing }

// noteSessionEnd records that the server ended the session, if xid answers the request to close the session.
func (l *Line) noteSessionEnd(xid int32) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if l.state.isClosing && l.state.closeXid == xid {
		l.wire.isSessionEnded = true
	}
}

// Write sends a frame, because zk.Conn passes each frame in a single call. Write never fails; a failure shows only at
// the next read.
func (l *Line) Write(frame []byte) (int, error) {
	if !l.isOpen() {
		l.wire.mu.Lock()
		lastZxid := l.wire.lastZxid
		l.wire.mu.Unlock()
		sent := withLastZxid(frame, lastZxid)
		if l.claim = claimOf(sent); l.claim.sessionID != 0 && l.wire.IsBound() {
			l.answerEnded()
			return len(frame), nil
		}
		_, _ = l.Conn.Write(sent)
		return len(frame), nil
	}
	xid, op := l.noteRequest(frame)
	if op == proto.OpPing && l.contact.savesPings() {
		return len(frame), nil // sendPings sends the pings that are needed
	}
	if op == proto.OpCloseSession {
		l.wire.owner.OnCloseSession()
	}
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

// sendFrame sends a frame of zk.Conn on an open line.
func (l *Line) sendFrame(xid, op int32, frame []byte) error {
	return l.contact.sendRequest(xid, op, func(isBehindPing bool) error { return l.writeFrames(frame, isBehindPing) })
}

// Read returns the bytes of one frame at most.
func (l *Line) Read(p []byte) (int, error) {
	n, err := 0, errAbandoned
	isRestBuffered := l.frameLeft > 0 && l.in.Buffered() >= l.frameLeft
	if isRestBuffered || !l.isAbandoned() { // zk.Conn gets the rest of a partly read frame
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
	case l.answerForgotten(err):
		return l.readFrame(p)
	default:
		l.noteFailedHandshake(err)
	}
	return n, err
}

// noteLineFailure records why an open line failed. The first reason counts, because later failures are consequences.
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

// Failure returns the reason for a failure of the line after the handshake, nil without a failure.
func (l *Line) Failure() error {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.failure
}

// noteFailedHandshake is called without an answer to the handshake.
func (l *Line) noteFailedHandshake(err error) {
	l.attempt.NoteFailure(fmt.Errorf("handshake with %s: %w", l.Peer(), l.explainRefusal(err)))
}

func (l *Line) readFrame(p []byte) (int, error) {
	if l.frameLeft == 0 {
		if err := l.beginFrame(); err != nil {
			return 0, err
		}
	}
	n, err := l.in.Read(p[:min(len(p), l.frameLeft)])
	l.frameLeft -= n
	if l.isAnswer {
		l.extendReadDeadline()
	}
	if !l.layout.Accept(p[:n]) {
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
	var lifetime time.Duration
	if id != 0 {
		lifetime = w.owner.OnHandshake(id, timeout)
	}
	l.attempt.NoteAnswer(id == 0)
	isResumed := id != 0 && id == l.claim.sessionID
	l.contact.noteHandshake(core.Handshake{BeganAt: l.beganAt, Timeout: lifetime, IsResumed: isResumed, IsBound: w.IsBound()})
	if isResumed {
		l.contact.noteZxid(l.claim.zxid)
	}
	period := w.owner.Period()
	w.mu.Lock()
	l.state.isOpen, l.sessionID = true, id
	w.refusals = refusals{}
	if id == 0 {
		clear(w.watches) // zk.Conn gives its watches up with the session
		w.lastZxid = 0
	}
	l.credentialsLeft = slices.Clone(w.credentials)
	l.releaseOwnLocked()
	l.restore.holdAnswersLocked(period)
	if lifetime > 0 {
		w.goLocked(func() { l.sendPings(lifetime) }) // ends with the line
		w.goLocked(l.writeOwn)                       // as well
		l.isPrompt.Store(writesPromptly(l.Conn))
	}
	w.mu.Unlock()
	_ = l.SetDeadline(time.Time{}) // the next read fails on a dead socket
}

// ProofLimit returns until when a committed write of this line, sent at sentAt, proves the session. That is the horizon
// after sentAt, or less because of a gap before the write.
func (l *Line) ProofLimit(sentAt time.Time, horizon, timeout time.Duration) time.Time {
	return l.contact.proofLimit(sentAt, horizon, timeout)
}

// SetReadDeadline is ignored during the handshake, which has a deadline of its own. The time counts from the
// last received byte, not from the call, because an answer may be long and the connection slow.
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

// extendReadDeadline restarts the time of SetReadDeadline, because bytes of an answer arrived.
func (l *Line) extendReadDeadline() {
	l.contact.noteBytes()
	l.renewReadDeadline()
}

// renewReadDeadline begins the time of SetReadDeadline anew. A server may send events, and answer nothing.
func (l *Line) renewReadDeadline() {
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

// sendPings keeps the session active at the server. An idle session pings only if nothing else was sent for
// almost T/4. zk.Conn takes the answers for answers to its own pings.
func (l *Line) sendPings(timeout time.Duration) {
	ticker := time.NewTicker(timeout / core.PingsPerTimeout)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if !l.contact.isPingDue(l.wire.isInUse.Load()) {
				continue
			}
			if err := l.sendFrame(proto.XidPing, proto.OpPing, pingFrame()); err != nil {
				return // zk.Conn notices the failure
			}
		case <-l.abandonDone:
			return
		case <-l.closeDone:
			return
		}
	}
}

// pingFrame returns the frame of a ping: length, xid −2, operation.
func pingFrame() []byte { return []byte{0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, proto.OpPing} }
