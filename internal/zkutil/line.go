package zkutil

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// line is one connection of a wire. As any net.Conn under zk.Conn it has one
// reader and one writer at a time.
type line struct {
	net.Conn
	wire    *wire
	address string // as it was dialled
	whole   bool   // the handshake has all our patience
	in      *bufio.Reader
	dialled time.Time
	began   time.Time // of the handshake
	contact *contact
	once    sync.Once
	done    chan struct{} // closed by Close
	leaving chan struct{} // closed by leave
	handed  chan struct{} // closed by listenOn
	dropped chan struct{} // closed when nothing more is expected of a line that was left

	// Of the reader.
	left     int    // bytes of the current frame still to be handed out
	isAnswer bool   // the current frame answers a request
	listens  bool   // listenOn has taken over
	layout   layout // of the current frame
	complete func() // what the current frame means, once it was handed out

	// Guarded by wire.mu.
	open    bool               // the handshake is done
	greeted bool               // the request of the handshake went out
	id      int64              // of the session
	silence time.Duration      // for how long zk.Conn waits for bytes
	pending map[int32]watchKey // requests that ask for a watch, by xid
	auth    int32              // xid of the latest request to present a credential
	closing bool               // the session's end has been asked for
	deaf    bool               // the server has not set the watches again
	armed   chan struct{}      // closed once the watches are set again; nil: nothing to wait for
	limit   *time.Timer        // for armed
}

// Close is safe to call from anywhere, more than once. It waits for nobody else's Close. A
// line that was left is closed by listenOn.
func (l *line) Close() error {
	first := false
	l.once.Do(func() {
		close(l.done)
		first = true
	})
	switch {
	case !first:
		return net.ErrClosed
	case l.isLeft():
		return nil
	default:
		return l.Conn.Close()
	}
}

func (l *line) isOpen() bool {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.open
}

// SetReadDeadline is ignored during the handshake, which has a deadline of its own. The time
// counts from the last byte that has come, not from the call: an answer may be long, and the
// line slow.
func (l *line) SetReadDeadline(t time.Time) error {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.silence = 0
	if !t.IsZero() {
		l.silence = time.Until(t)
	}
	if !l.open || l.isLeft() {
		return nil
	}
	return l.Conn.SetReadDeadline(t)
}

// prolong begins the time of SetReadDeadline anew, because bytes have come.
func (l *line) prolong() {
	l.contact.move()
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if l.silence > 0 && l.open && !l.isLeft() {
		_ = l.Conn.SetReadDeadline(time.Now().Add(l.silence)) // a dead socket says so at the next read
	}
}

// SetWriteDeadline is ignored during the handshake, which has a deadline of its own.
func (l *line) SetWriteDeadline(t time.Time) error {
	if !l.isOpen() {
		return nil
	}
	return l.Conn.SetWriteDeadline(t)
}

// Write sends one frame: zk.Conn passes each in a single call. A failure shows at the
// next read alone.
func (l *line) Write(frame []byte) (int, error) {
	if !l.isOpen() {
		l.wire.mu.Lock()
		l.greeted = true
		l.wire.mu.Unlock()
		_, _ = l.Conn.Write(frame)
		return len(frame), nil
	}
	xid, op := l.outgoing(frame)
	if err := l.send(xid, op, frame); err != nil {
		_ = l.Close()
	} else if op == proto.OpSetWatches || op == proto.OpSetWatches2 {
		l.watchesSent()
	}
	return len(frame), nil
}

// send sends a frame of an open line.
func (l *line) send(xid, op int32, frame []byte) error {
	return l.contact.send(xid, op, func() error {
		if l.isLeft() {
			return net.ErrClosed
		}
		_, err := l.Conn.Write(frame)
		return err
	})
}

// Read hands out the bytes of one frame at most.
func (l *line) Read(p []byte) (int, error) {
	n, err := 0, errLeft
	if hasBegun := l.left > 0 && l.in.Buffered() >= l.left; hasBegun || !l.isLeft() {
		n, err = l.read(p) // zk.Conn gets the rest of what it has begun to read
	}
	if err != nil && l.isLeft() {
		l.listenOn()
		return 0, errLeft
	}
	if err != nil && !l.isOpen() {
		l.wire.gaveUp(l.address, l.whole, err)
		if l.isGreeted() {
			l.wire.unanswered(l.began)
		}
		l.wire.failed(l.address, fmt.Errorf("handshake with %s: %w", l.RemoteAddr(), withoutAnswer(err)))
	}
	return n, err
}

func (l *line) isGreeted() bool {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.greeted
}

func (l *line) read(p []byte) (int, error) {
	if l.left == 0 {
		if err := l.next(); err != nil {
			return 0, err
		}
	}
	n, err := l.in.Read(p[:min(len(p), l.left)])
	l.left -= n
	if l.isAnswer && l.left > 0 {
		l.prolong()
	}
	if !l.layout.fits(p[:n]) {
		return 0, l.refuse()
	}
	if l.left == 0 && l.complete != nil {
		l.complete()
		l.complete = nil
	}
	return n, err
}

// watchesSent lets answers pass once the request of this line was written. A line
// that died early has left one behind in zk.Conn's queue, which comes first.
func (l *line) watchesSent() {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.wire.unsent = max(l.wire.unsent-1, 0)
	if l.wire.unsent == 0 {
		l.armLocked()
	} else if l.armed != nil {
		l.limit.Reset(staleWatches)
	}
}

// withoutWatches is called when the server has refused to set the watches again, as one
// that throttles may. zk.Conn goes on as if it had them. So do we for the time of a
// heartbeat, in which a server that goes on refusing serves everything else; then the next
// connection tries again, and whoever waits for something looks again.
func (l *line) withoutWatches() {
	patience := l.wire.period()
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.deaf = true
	if l.wire.closed {
		return
	}
	l.wire.tasks.Go(func() { // ends with the line
		select {
		case <-time.After(patience):
		case <-l.done:
			return
		}
		if !l.isClosing() {
			l.wire.failed(l.address, errWatchesRefused)
			_ = l.Close()
		}
	})
}

// staleWatches is how long to wait for a second request to set the watches, which
// zk.Conn may have dropped.
const staleWatches = 50 * time.Millisecond

// settling is how long zk.Conn may take after a handshake to find that it has no
// watches: one that is answered before would look like one to set again. On a busy machine
// its goroutine may not run for some milliseconds.
const settling = 10 * time.Millisecond

func (l *line) armLocked() {
	if l.armed != nil {
		l.wire.unsent = 0
		l.limit.Stop()
		close(l.armed)
		l.armed = nil
	}
}

// isCredential reports whether xid is the request that presents a credential.
func (l *line) isCredential(xid int32) bool {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.auth != 0 && l.auth == xid
}

func (l *line) isClosing() bool {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.closing
}

// awaitArmed returns once answers may pass; an error if they never may.
func (l *line) awaitArmed() error {
	l.wire.mu.Lock()
	armed := l.armed
	l.wire.mu.Unlock()
	if armed == nil {
		return nil
	}
	select {
	case <-armed:
	case <-l.done:
		return net.ErrClosed
	case <-l.leaving:
		return errLeft
	case <-l.limit.C:
		l.wire.mu.Lock()
		defer l.wire.mu.Unlock()
		l.armLocked()
	}
	return nil
}

// opened ends the handshake: the deadlines are zk.Conn's from here on.
func (l *line) opened(id int64, timeout time.Duration) {
	w := l.wire
	lifetime := w.greeted(id, timeout, l.began)
	l.contact.open(l.began, lifetime)
	patience := w.period()
	w.mu.Lock()
	l.open, l.id, w.took = true, id, time.Since(l.dialled)
	if id != 0 {
		w.slow = 0
	} else {
		clear(w.watches) // zk.Conn gives its watches up with the session
	}
	l.armed = make(chan struct{})
	if len(w.watches) > 0 {
		w.unsent++
		l.limit = time.NewTimer(patience) // for a zk.Conn that behaves differently
	} else {
		l.limit = time.NewTimer(settling)
	}
	if id != 0 && lifetime > 0 && !w.closed {
		w.tasks.Go(func() { l.ping(lifetime / pingsPerTimeout) }) // ends with the line
	}
	w.mu.Unlock()
	_ = l.SetDeadline(time.Time{}) // a dead socket says so at the next read
}

// ping keeps the session active at the server. zk.Conn takes the answers for those to
// its own pings.
func (l *line) ping(every time.Duration) {
	frame := []byte{0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, proto.OpPing} // length, xid −2, operation
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := l.send(proto.XidPing, proto.OpPing, frame); err != nil {
				return // zk.Conn finds out by itself
			}
		case <-l.leaving:
			return
		case <-l.done:
			return
		}
	}
}
