package wire

import "time"

// Deadlines of a line.

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

// extendReadDeadline begins the time of SetReadDeadline anew, because bytes of an answer have come.
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
