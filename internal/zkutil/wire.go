package zkutil

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
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
//   - pings every T/10 (zk.Conn does every T/3), so that the leader's record of when the
//     session was last active is never far behind: see Session.horizon;
//   - after a reconnect, holds answers back until the watches are set again.
//
// The last matters because zk.Conn tells the server "my watches stand since zxid x"
// and reads x while answers may already be moving it: a changed znode in between
// would never be reported.
type wire struct {
	dial     func(network, address string, timeout time.Duration) (net.Conn, error)
	now      func() time.Time     // the session's clock
	period   func() time.Duration // between heartbeats
	servers  func() int           // how many addresses there are
	patience func() time.Duration // for a dial or a handshake
	isSaving func() bool          // a hold outlives a reconnect in time
	// greeted is called when a handshake is done; id 0: the session has expired. It returns the
	// timeout by which the session has to be kept alive.
	greeted    func(id int64, timeout time.Duration, began time.Time) time.Duration
	unanswered func(began time.Time)           // a handshake has failed after the request went out
	proven     func(w sentWrite)               // a write was committed, on a connection that was left
	failed     func(address string, err error) // a dial or a handshake failed

	tasks   sync.WaitGroup // of the lines; joined in shut
	holding atomic.Bool    // set by the session: something is held

	mu      sync.Mutex // protects what is below
	current *line
	dialled string               // the address of the latest dial
	silent  map[string]time.Time // when a server last let us wait in vain, by address
	took    time.Duration        // the latest dial and handshake that went well
	slow    int                  // handshakes in a row that took too long
	left    []*line              // connections that were left: see line.leave
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
	patience, whole := w.patienceWith(address)
	dialled := time.Now()
	conn, err := w.dial(network, address, patience)
	if err != nil {
		w.gaveUp(address, whole, err)
		w.failed(address, err)
		return nil, err
	}
	l := &line{Conn: conn, wire: w, address: address, whole: whole, dialled: dialled, in: bufio.NewReaderSize(conn, 16<<10), began: w.now(), pending: map[int32]watchKey{}, done: make(chan struct{}), leaving: make(chan struct{}), handed: make(chan struct{}), dropped: make(chan struct{}), contact: newContact(w.now, &w.holding)}
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

// isDeaf reports whether the server does not tell what the watches from before the
// connection are for.
func (w *wire) isDeaf() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current != nil && w.current.deaf
}

// cut closes the socket, so that zk.Conn tries the next server.
func (w *wire) cut() {
	if l := w.line(); l != nil {
		_ = l.Close()
	}
}

// lastMoved is when bytes of an answer came last.
func (w *wire) lastMoved() time.Time {
	if l := w.line(); l != nil {
		return l.contact.lastMoved()
	}
	return time.Time{}
}

// lastWritten is when the latest answer to a write came, a refusal too.
func (w *wire) lastWritten() time.Time {
	if l := w.line(); l != nil {
		return l.contact.lastWritten()
	}
	return time.Time{}
}

// awaitsWrite reports whether a write has not been answered yet.
func (w *wire) awaitsWrite() bool {
	l := w.line()
	return l != nil && l.contact.awaitsWriteAfter(time.Time{})
}

// shut cuts, refuses every further dial, and joins the tasks of the lines.
func (w *wire) shut() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cut()
	w.dropLeft()
	w.tasks.Wait()
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

// logAdapter passes what zk.Conn has to say on at debug level. zk.WithLogInfo(false)
// goes with it: the other lines print session ids.
type logAdapter struct{ s *Session }

var _ zk.Logger = logAdapter{}

func (a logAdapter) Printf(format string, args ...any) {
	a.s.log(slog.LevelDebug, "zk.Conn: "+fmt.Sprintf(format, args...))
}
