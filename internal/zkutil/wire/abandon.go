package wire

import (
	"encoding/binary"
	"net"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Abandon gives the line up for a new line. zk.Conn finds its connection broken and dials again, but the socket
// stays open for the answers to writes in flight. If the quorum is slow, rather than the server silent, such
// answers still prove the session.
//
//	IN USE -- Abandon --> ABANDONED -- zk.Conn's reader ends --> HANDED OVER --> CLOSED
//
// Transitions:
//
//   - IN USE: with no write in flight, before the handshake or in a closed wire, Abandon closes the line as
//     Close does.
//   - ABANDONED: zk.Conn's reads and writes fail, and its Close leaves the socket open.
//     readAbandoned waits for the end of zk.Conn's reader, because a line has one reader at a time.
//   - HANDED OVER: readAbandoned reads the answers and reports each committed write to the owner. The engine's own
//     requests already failed with zk.ErrConnectionClosed.
//   - CLOSED: no write is in flight any more, T is over (a later answer proves nothing), the socket failed,
//     DropAbandoned dropped the line, or the wire was closed. If zk.Conn's reader ended before Abandon, nothing is
//     handed over. Then one of T, DropAbandoned and the end of the wire leads from ABANDONED to CLOSED.
func (l *Line) Abandon() {
	l.noteLineFailure(errAbandoned)
	unsent, unanswered, ok := l.startAbandoning()
	failAll(unsent, zk.ErrNoServer)
	failAll(unanswered, zk.ErrConnectionClosed)
	if !ok {
		_ = l.Close()
	}
}

// startAbandoning returns false if the socket is no longer needed. The engine's own requests are abandoned before
// another reader takes over their answers.
func (l *Line) startAbandoning() (unsent, unanswered []sentFrame, ok bool) {
	w := l.wire
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed || l.isAbandoned() || !l.contact.hasProofInFlightAfter(time.Time{}) {
		return nil, nil, false
	}
	unsent, unanswered = l.out.close(), l.contact.giveUp()
	w.abandoned = append(w.abandoned, l)
	close(l.abandonDone)
	// The deadlines end zk.Conn's read, which hands over, and a stuck write.
	_ = l.Conn.SetReadDeadline(time.Unix(1, 0))
	_ = l.Conn.SetWriteDeadline(time.Unix(1, 0))
	w.goLocked(l.readAbandoned) // ends in CLOSED
	return unsent, unanswered, true
}

func (l *Line) isAbandoned() bool {
	select {
	case <-l.abandonDone:
		return true
	default:
		return false
	}
}

// handOver is called by zk.Conn's reader, which does not read again: readAbandoned takes over.
func (l *Line) handOver() {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if l.isHandedOver || !slices.Contains(l.wire.abandoned, l) {
		return
	}
	l.isHandedOver = true
	_ = l.Conn.SetReadDeadline(time.Now().Add(l.contact.lifetime())) // the old deadline ended zk.Conn's read
	close(l.handOverDone)
}

// readAbandoned reads the answers on an abandoned line, and closes the line.
func (l *Line) readAbandoned() {
	defer l.wire.closeAbandoned(l)
	limit := time.NewTimer(l.contact.lifetime())
	defer limit.Stop()
	select {
	case <-l.handOverDone:
	case <-l.dropDone:
		return
	case <-limit.C:
		return
	}
	for l.contact.hasProofInFlightAfter(time.Time{}) {
		if err := l.readAbandonedAnswer(); err != nil {
			return
		}
	}
}

// DropAbandoned drops the abandoned lines without a write in flight that was sent after provenAt: answers on
// such lines can't extend the proof.
func (w *Wire) DropAbandoned(provenAt time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned = slices.DeleteFunc(w.abandoned, func(l *Line) bool {
		if l.contact.hasProofInFlightAfter(provenAt) {
			return false
		}
		_ = l.Conn.SetReadDeadline(time.Unix(1, 0))
		close(l.dropDone)
		return true
	})
}

// dropAllAbandoned ends readAbandoned on all lines.
func (w *Wire) dropAllAbandoned() {
	w.mu.Lock()
	abandoned := w.abandoned
	w.abandoned = nil
	w.mu.Unlock()
	for _, l := range abandoned {
		close(l.dropDone)
		_ = l.Conn.Close()
	}
}

// closeAbandoned closes the socket of an abandoned line.
func (w *Wire) closeAbandoned(l *Line) {
	_ = l.Conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned = slices.DeleteFunc(w.abandoned, func(other *Line) bool { return other == l })
}

// readAbandonedAnswer reads one frame of an abandoned line.
func (l *Line) readAbandonedAnswer() error {
	if _, err := l.in.Discard(l.frameLeft); err != nil { // the rest of a frame that zk.Conn started to read
		return err
	}
	l.frameLeft = 0
	head, err := l.in.Peek(proto.HeaderSize)
	if err != nil {
		return err
	}
	d := proto.NewDecoder(head)
	size, xid, zxid, code := d.Int32(), d.Int32(), d.Int64(), d.Int32()
	l.frameLeft = 4 + int(size)
	if size < proto.HeaderSize-4 {
		return net.ErrClosed // malformed
	}
	write, ok := l.contact.noteAnswer(xid, code)
	if ok && write.IsProof() && !write.IsUncommitted(zxid) && code == proto.CodeOK && !l.isRefusedMulti(write, int(size)) {
		l.wire.owner.OnLateProof(SentWrite{write.SentAt, l.sessionID, l})
	}
	return nil
}

// isRefusedMulti reports whether the next frame answers a refused Multi. The header of such an answer reports
// no error, but the first part does.
func (l *Line) isRefusedMulti(request sentFrame, size int) bool {
	const part = proto.HeaderSize + 4
	if request.Op != proto.OpMulti || 4+size < part {
		return request.Op == proto.OpMulti
	}
	head, err := l.in.Peek(part)
	return err != nil || int32(binary.BigEndian.Uint32(head[part-4:])) == proto.OpError
}
