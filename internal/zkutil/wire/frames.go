package wire

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// MaxFrame bounds a frame of the server. It fits a listing of about 280,000 waiters.
const MaxFrame = 16 << 20

// maxLength bounds the length of a frame, so that the length and its own four bytes fit into an int of 32 bits.
const maxLength = math.MaxInt32 - 4

// beginFrame blocks until a frame for zk.Conn arrives, and interprets the frame. The frame takes effect in
// onFrameRead, which runs when zk.Conn has the whole frame. zk.Conn acts on a frame before reading on, so the wire
// and zk.Conn take the same steps in the same order. Answers to the engine's own requests, and the events of its own
// watches, are taken out.
func (l *Line) beginFrame() error {
	for {
		isOwn, err := l.beginAnyFrame()
		if !isOwn || err != nil {
			return err
		}
		if l.isAbandoned() {
			return errAbandoned
		}
	}
}

func (l *Line) beginAnyFrame() (isOwn bool, err error) {
	head, err := l.in.Peek(4)
	if err != nil {
		return false, err
	}
	length := binary.BigEndian.Uint32(head)
	if length > maxLength {
		return false, l.failMalformed()
	}
	size := int(length)
	l.isAnswer, l.layout = false, proto.Layout{}
	if !l.isOpen() {
		return false, l.peekHandshake(size)
	}
	if size < proto.HeaderSize-4 {
		return false, l.failMalformed()
	}
	if head, err = l.in.Peek(proto.HeaderSize); err != nil {
		return false, err
	}
	d := proto.NewDecoder(head[4:])
	xid, zxid, code := d.Int32(), d.Int64(), d.Int32()
	l.isAnswer = xid >= 0
	if code == proto.CodeLoginRequired {
		l.noteLineFailure(errLoginRequired)
	}
	var request sentFrame
	var isExpected bool
	if xid != proto.XidEvent {
		request, isExpected = l.contact.noteAnswer(xid, code)
	}
	if isExpected {
		l.contact.noteZxid(zxid)
	}
	switch {
	case xid == proto.XidEvent:
		l.layout = proto.EventLayout(size)
		return l.peekEvent(size)
	case isOwnXid(xid):
		if !isExpected {
			return true, l.failMalformed()
		}
		l.frameLeft = 4 + size
		err := l.takeAnswer(request, zxid, code)
		l.extendReadDeadline() // zk.Conn does so for its own frames alone
		return true, err
	case xid == proto.XidPing && !isExpected && l.contact.isAnswerLost():
		return false, l.failMalformed() // while a write is in flight, nothing else ends the wait
	case xid >= 0:
		if code == proto.CodeOK {
			l.layout = proto.AnswerLayout(request.Op, size)
		}
		if err := l.passAnswer(xid, zxid, code, head); err != nil {
			return false, err
		}
	}
	l.frameLeft = 4 + size
	return false, nil
}

// passAnswer blocks until the answer to a request may pass, as watchRestore explains. The frame begins with head.
func (l *Line) passAnswer(xid int32, zxid int64, code int32, head []byte) error {
	isCredential := l.noteCredentialAnswer(xid, code)
	if zxid > 0 && !isCredential {
		if err := l.restore.awaitRelease(); err != nil {
			return err // the answer is lost
		}
	}
	if isCredential || l.isClosing() {
		// zk.Conn must take no zxid from an answer that was not held back. Some servers set the zxid in the
		// answer to a credential.
		clear(head[8:16])
	}
	if code != proto.CodeOK && l.isSetWatches(xid) {
		l.restore.noteRefusal()
	}
	if code == proto.CodeOK {
		l.noteSessionEnd(xid)
	}
	l.onFrameRead = func() { l.registerWatch(xid, code) }
	return nil
}

// failMalformed ends the connection because of a malformed frame. zk.Conn does not get the rest of the frame.
func (l *Line) failMalformed() error {
	l.frameLeft, l.onFrameRead = 0, nil
	if !l.isOpen() {
		return errNotZooKeeper
	}
	l.attempt.NoteFailure(errMalformed)
	_ = l.Close()
	return errMalformed
}

// peekHandshake reads the answer to the handshake: protocol version, timeout, session id, password.
func (l *Line) peekHandshake(size int) error {
	const shortest, longest = 4 + 4 + 8 + 4, 1 << 10
	if size < shortest || size > longest { // zk.Conn would allocate any size
		return l.failMalformed()
	}
	frame, err := l.in.Peek(4 + size)
	if err != nil {
		return err
	}
	d := proto.NewDecoder(frame[8:])
	timeout, id := time.Duration(d.Int32())*time.Millisecond, d.Int64()
	password := d.Buffer()
	if d.Err() != nil || id != 0 && timeout <= 0 {
		return l.failMalformed()
	}
	if id != 0 {
		l.wire.owner.OnGranted(id, timeout, l.beganAt)
	}
	if id != 0 && l.wire.mechanism != nil {
		if err := l.logIn(slices.Clone(frame)); err != nil {
			return err
		}
	}
	l.frameLeft = 4 + size
	l.onFrameRead = func() {
		l.wire.setBound(id != 0 && isEmptyPassword(password))
		l.finishHandshake(id, timeout)
	}
	return nil
}

// peekEvent reads a watch event: type, state and path follow the header. An event without a watch of zk.Conn
// belongs to the engine's own watches alone, and is taken out. If the path is longer than the buffer, the event
// passes, the watch stays in the list, and a reconnect may wait for a setWatches in vain.
func (l *Line) peekEvent(size int) (isOwn bool, err error) {
	frame, err := l.in.Peek(min(4+size, l.in.Size()))
	if err != nil {
		return false, err
	}
	l.frameLeft = 4 + size
	d := proto.NewDecoder(frame[proto.HeaderSize:])
	kind, _, path := d.Int32(), d.Int32(), d.String()
	isWhole := d.Err() == nil
	if isWhole && d.Len() == 0 && !l.hasConnWatch(kind, path) {
		n, err := l.in.Discard(l.frameLeft) // reads only if the frame is longer than the buffer
		l.frameLeft -= n
		l.wire.owner.OnEvent(kind, path)
		l.renewReadDeadline()
		return true, err
	}
	if isWhole {
		l.onFrameRead = func() { l.forgetFired(kind, path) }
	}
	return false, nil
}
