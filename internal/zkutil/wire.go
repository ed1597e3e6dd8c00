package zkutil

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// wire dials for one zk.Conn and keeps an eye on the frames that pass. It does
// what zk.Conn leaves out:
//
//   - reads the negotiated session timeout, which zk.Conn keeps to itself;
//   - fails a handshake that takes too long (zk.Conn waits for ten receive timeouts);
//   - closes the previous socket at each dial (zk.Conn leaks one per expiry);
//   - turns a failed write into a closed socket: the error would be told to a request
//     more often than its channel has room for, and zk.Conn waits for itself for good
//     (go-zookeeper PR 163 has it for the resend of credentials);
//   - pings every T/8 (zk.Conn does every T/3), so that the leader's record of when the
//     session was last active is never far behind: see Session.horizon;
//   - after a reconnect, holds answers back until the watches are set again.
//
// The last matters because zk.Conn tells the server "my watches stand since zxid x"
// and reads x while answers may already be moving it: a changed znode in between
// would never be reported.
type wire struct {
	dial     func(network, address string, timeout time.Duration) (net.Conn, error)
	patience func() time.Duration                                   // for a dial, a handshake, the watches
	greeted  func(id int64, timeout time.Duration, began time.Time) // handshake done; id 0: session expired
	failed   func(err error)                                        // a dial or a handshake failed

	pingers sync.WaitGroup // of the lines; joined in shut

	mu      sync.Mutex // protects what is below
	current *line
	closed  bool
	watches map[watchKey]struct{} // the watches that zk.Conn has registered
	unsent  int                   // requests to set them again that zk.Conn has queued
}

// Dial is the zk.Dialer of the connection. The timeout that zk.Conn asks for is
// replaced by our own.
func (w *wire) Dial(network, address string, _ time.Duration) (net.Conn, error) {
	w.cut()
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	patience := w.patience()
	conn, err := w.dial(network, address, patience)
	if err != nil {
		w.failed(err)
		return nil, err
	}
	l := &line{Conn: conn, wire: w, in: bufio.NewReaderSize(conn, 16<<10), began: time.Now(), pending: map[int32]watchKey{}, done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	w.current = l
	return l, nil
}

// line returns the latest connection, nil before the first.
func (w *wire) line() *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// cut closes the socket, so that zk.Conn tries the next server.
func (w *wire) cut() {
	if l := w.line(); l != nil {
		_ = l.Close()
	}
}

// shut cuts, refuses every further dial, and joins the pingers.
func (w *wire) shut() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cut()
	w.pingers.Wait()
}

// localAddress is the host's address as the server sees it, "" when unknown.
func (w *wire) localAddress() string {
	l := w.line()
	if l == nil || l.LocalAddr() == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(l.LocalAddr().String())
	if err != nil {
		return ""
	}
	return host
}

// line is one connection of a wire. As any net.Conn under zk.Conn it has one
// reader and one writer at a time.
type line struct {
	net.Conn
	wire  *wire
	in    *bufio.Reader
	began time.Time
	once  sync.Once
	done  chan struct{} // closed by Close

	// Of the reader.
	left     int    // bytes of the current frame still to be handed out
	complete func() // what the current frame means, once it was handed out

	// Guarded by wire.mu.
	open    bool               // the handshake is done
	pending map[int32]watchKey // requests that ask for a watch, by xid
	auth    int32              // xid of the latest resend of a credential
	armed   chan struct{}      // closed once the watches are set again; nil: nothing to wait for
	limit   *time.Timer        // for armed
}

// Close is safe to call from anywhere, more than once.
func (l *line) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.done)
		err = l.Conn.Close()
	})
	return err
}

func (l *line) isOpen() bool {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.open
}

// SetReadDeadline is ignored during the handshake, which has a deadline of its own.
func (l *line) SetReadDeadline(t time.Time) error {
	if !l.isOpen() {
		return nil
	}
	return l.Conn.SetReadDeadline(t)
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
		return l.Conn.Write(frame)
	}
	op := l.outgoing(frame)
	if _, err := l.Conn.Write(frame); err != nil {
		_ = l.Close()
	} else if op == opSetWatches {
		l.watchesSent()
	}
	return len(frame), nil
}

// Read hands out the bytes of one frame at most.
func (l *line) Read(p []byte) (int, error) {
	if l.left == 0 {
		if err := l.next(); err != nil {
			if !l.isOpen() {
				l.wire.failed(fmt.Errorf("handshake with %s: %w", l.RemoteAddr(), err))
			}
			return 0, err
		}
	}
	n, err := l.in.Read(p[:min(len(p), l.left)])
	l.left -= n
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

// staleWatches is how long to wait for a second request to set the watches, which
// zk.Conn may have dropped.
const staleWatches = 50 * time.Millisecond

// settling is how long zk.Conn may take after a handshake to find that it has no
// watches: one that is answered before would look like one to set again.
const settling = 2 * time.Millisecond

func (l *line) armLocked() {
	if l.armed != nil {
		l.wire.unsent = 0
		l.limit.Stop()
		close(l.armed)
		l.armed = nil
	}
}

// awaitArmed returns once the answer to xid may pass; an error if it never may. One to
// a credential always may: zk.Conn sends nothing else before.
func (l *line) awaitArmed(xid int32) error {
	l.wire.mu.Lock()
	armed, auth := l.armed, l.auth
	l.wire.mu.Unlock()
	if armed == nil || xid == auth {
		return nil
	}
	select {
	case <-armed:
	case <-l.done:
		return net.ErrClosed
	case <-l.limit.C:
		l.wire.mu.Lock()
		defer l.wire.mu.Unlock()
		l.armLocked()
	}
	return nil
}

// opened ends the handshake: the deadlines are zk.Conn's from here on.
func (l *line) opened(id int64, timeout time.Duration) {
	w, patience := l.wire, l.wire.patience()
	w.mu.Lock()
	l.open = true
	if id == 0 {
		clear(w.watches) // zk.Conn gives its watches up with the session
	}
	l.armed = make(chan struct{})
	if len(w.watches) > 0 {
		w.unsent++
		l.limit = time.NewTimer(patience) // for a zk.Conn that behaves differently
	} else {
		l.limit = time.NewTimer(settling)
	}
	if id != 0 && timeout > 0 && !w.closed {
		w.pingers.Go(func() { l.ping(timeout / pingsPerTimeout) }) // ends with the line
	}
	w.mu.Unlock()
	_ = l.SetDeadline(time.Time{}) // a dead socket says so at the next read
	w.greeted(id, timeout, l.began)
}

// ping keeps the session active at the server. zk.Conn takes the answers for those to
// its own pings.
func (l *line) ping(every time.Duration) {
	frame := []byte{0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, opPing} // length, xid −2, operation
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if _, err := l.Conn.Write(frame); err != nil {
				return // zk.Conn finds out by itself
			}
		case <-l.done:
			return
		}
	}
}

// logAdapter passes what zk.Conn has to say on at debug level. zk.WithLogInfo(false)
// goes with it: the other lines print session ids.
type logAdapter struct{ s *Session }

var _ zk.Logger = logAdapter{}

func (a logAdapter) Printf(format string, args ...any) {
	a.s.log(slog.LevelDebug, "zk.Conn: "+fmt.Sprintf(format, args...))
}
