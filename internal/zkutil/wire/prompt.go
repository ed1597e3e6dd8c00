package wire

import "net"

// While everything on a line is answered, whoever sends a request writes it himself, because the line's writer would
// have to be woken first, which takes a tenth of a millisecond on an idle machine. Otherwise the writer writes, and what
// comes while it does leaves together.
//
// A write by the sender does not block: the server has read all that was sent, so the buffer of the socket is empty,
// and a short request fits. That holds for TCP. It is not known of TLS, nor of what a user's dialer returns.

// promptWriter is a connection that takes a short write at once when its peer has read all that came before.
type promptWriter interface{ WritesPromptly() }

// shortWrite is a length in bytes that fits into the buffer of any socket. Linux has 4.5 KiB at least.
const shortWrite = 1 << 10

func writesPromptly(conn net.Conn) bool {
	switch conn.(type) {
	case *net.TCPConn, promptWriter:
		return true
	default:
		return false
	}
}

// writeAtOnce writes what is in the outbox, unless that is for the writer to do: then it returns false.
func (l *Line) writeAtOnce() bool {
	if !l.isPrompt.Load() || !l.arePresented() {
		return false
	}
	isFlushed, err := l.flushIfIdle()
	if err != nil {
		l.failWith(err)
	}
	return isFlushed
}

// flushIfIdle writes what is in the outbox if that is short, nobody else writes, and no answer is due.
func (l *Line) flushIfIdle() (isFlushed bool, err error) {
	select {
	case l.contact.writing <- struct{}{}:
	default:
		return false, nil
	}
	defer func() { <-l.contact.writing }()
	if l.contact.isAnswerDue() {
		return false, nil
	}
	return l.flushInTurn(shortWrite)
}

// arePresented reports whether zk.Conn has presented its credentials again.
func (l *Line) arePresented() bool {
	select {
	case <-l.credentialsDone:
		return true
	default:
		return false
	}
}

// isAnswerDue reports whether a request has no answer yet, of zk.Conn's or of the engine's own.
func (c *contact) isAnswerDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inFlight.all()) > 0
}
