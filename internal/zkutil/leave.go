package zkutil

import (
	"encoding/binary"
	"net"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// leave gives the line up for another one. zk.Conn finds its connection broken, but the socket
// stays open for the answers to writes that are on their way: if the quorum is slow and not
// the server silent, they still prove the session.
func (l *line) leave() {
	if !l.beginLeaving() {
		_ = l.Close()
	}
}

// beginLeaving reports whether somebody listens on.
func (l *line) beginLeaving() bool {
	w := l.wire
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !l.open || l.isLeft() || !l.contact.awaitsWriteAfter(time.Time{}) {
		return false
	}
	w.left = append(w.left, l)
	close(l.leaving)
	// zk.Conn's read ends, and hands over to listenOn. A write that is stuck ends as well.
	_ = l.Conn.SetReadDeadline(time.Unix(1, 0))
	_ = l.Conn.SetWriteDeadline(time.Unix(1, 0))
	w.tasks.Go(l.hearAnswers) // ends with the answers, after T, when nothing more is expected, or by wire.shut
	return true
}

func (l *line) isLeft() bool {
	select {
	case <-l.leaving:
		return true
	default:
		return false
	}
}

// listenOn is called by zk.Conn's reader, which reads no more: hearAnswers takes its place.
func (l *line) listenOn() {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if l.listens || !slices.Contains(l.wire.left, l) {
		return
	}
	l.listens = true
	// No proof comes in time after T. The deadline of the read that was ended is over.
	_ = l.Conn.SetReadDeadline(time.Now().Add(l.contact.lifetime()))
	close(l.handed)
}

// hearAnswers reads the answers on a line that was left, and closes it.
func (l *line) hearAnswers() {
	defer l.wire.forget(l)
	limit := time.NewTimer(l.contact.lifetime())
	defer limit.Stop()
	select {
	case <-l.handed:
	case <-l.dropped:
		return
	case <-limit.C: // there was no reader any more
		return
	}
	for l.contact.awaitsWriteAfter(time.Time{}) {
		if err := l.hearAnswer(); err != nil {
			return
		}
	}
}

// stopListening drops the lines on which nothing can come any more that proves more than a
// write that was sent at proven.
func (w *wire) stopListening(proven time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = slices.DeleteFunc(w.left, func(l *line) bool {
		if l.contact.awaitsWriteAfter(proven) {
			return false
		}
		_ = l.Conn.SetReadDeadline(time.Unix(1, 0))
		close(l.dropped)
		return true
	})
}

// dropLeft ends hearAnswers on all lines that were left.
func (w *wire) dropLeft() {
	w.mu.Lock()
	left := w.left
	w.left = nil
	w.mu.Unlock()
	for _, l := range left {
		close(l.dropped)
		_ = l.Conn.Close()
	}
}

// forget closes a line that was left.
func (w *wire) forget(l *line) {
	_ = l.Conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = slices.DeleteFunc(w.left, func(other *line) bool { return other == l })
}

// hearAnswer reads a frame of a line that was left.
func (l *line) hearAnswer() error {
	if _, err := l.in.Discard(l.left); err != nil { // the rest of a frame that zk.Conn had begun
		return err
	}
	l.left = 0
	const header = 4 + 16
	head, err := l.in.Peek(header)
	if err != nil {
		return err
	}
	d := proto.NewDecoder(head)
	size, xid, _, code := d.Int32(), d.Int32(), d.Int64(), d.Int32()
	l.left = 4 + int(size)
	if size < header-4 {
		return net.ErrClosed // malformed
	}
	write, ok := l.contact.receive(xid)
	if ok && write.isProof() && code == proto.CodeOK && !l.isRefusedMulti(write, int(size)) {
		l.wire.proven(sentWrite{write.at, l.id, l})
	}
	return nil
}

// isRefusedMulti reports whether the frame to come answers a Multi that was refused: its
// header says nothing of that, but its first part does.
func (l *line) isRefusedMulti(request sentFrame, size int) bool {
	const part = 4 + 16 + 4
	if request.op != proto.OpMulti || 4+size < part {
		return request.op == proto.OpMulti
	}
	head, err := l.in.Peek(part)
	return err != nil || int32(binary.BigEndian.Uint32(head[part-4:])) == proto.OpError
}
