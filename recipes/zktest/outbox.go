package zktest

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// push sends a frame. Called under the lock.
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
	if l.srv.loseEventLocked(l.claims) {
		return
	}
	l.push(header(proto.XidEvent, -1, proto.CodeOK).Int32(e.kind).Int32(connected).String(e.path).Frame())
}

func header(xid int32, zxid int64, code int32) *proto.Encoder {
	return proto.NewEncoder().Int32(xid).Int64(zxid).Int32(code)
}

// takePen makes the caller the writer if there is something to write. Called under
// the lock.
func (l *line) takePen() bool {
	if l.writing || l.closed || l.silent() || len(l.outbox) == 0 {
		return false
	}
	l.writing = true
	return true
}

// send empties the outbox. Called under the lock, which it gives up.
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
			l.deaf, l.outbox = true, nil // the reader may have more, and finds out by itself
		}
		l.wake()
	}
	l.writing = false
	l.wake()
}

// finish ends the connection behind what it has to send. Called under the lock.
func (l *line) finish() {
	l.last = true
	l.wake()
}

// dismiss ends the connection as soon as its client can learn of it. Called under the
// lock.
func (l *line) dismiss() {
	if l.server.isolated() {
		return // it learns of nothing
	}
	l.leaveCommits()
	l.detach()
	l.inbox, l.outbox, l.held, l.backlog, l.last = nil, nil, nil, 0, true
	if !l.silent() {
		l.close()
	}
}

// retire is what becomes of a connection whose session has gone to another server: what
// was executed and the writes that wait for their commit are answered, and that is all.
// Called under the lock.
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

// close ends the connection; what it has not sent is lost. Called under the lock.
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

// detach takes leave of the session.
func (l *line) detach() {
	l.srv.watches.forget(l)
	if l.session != nil && l.session.line == l {
		l.session.line = nil
	}
	l.session = nil
}
