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
	failed   func(address string, err error)                        // a dial or a handshake failed

	tasks   sync.WaitGroup // of the lines; joined in shut
	parked  chan struct{}  // closed when zk.Conn looks for a server after shut
	parking sync.Once

	mu      sync.Mutex // protects what is below
	current *line
	dialled string               // the address of the latest dial
	silent  map[string]time.Time // when a server last let us wait in vain, by address
	took    time.Duration        // the latest dial and handshake that went well
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
	l := &line{Conn: conn, wire: w, address: address, whole: whole, dialled: dialled, in: bufio.NewReaderSize(conn, 16<<10), began: time.Now(), pending: map[int32]watchKey{}, done: make(chan struct{})}
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

// looking is called when zk.Conn looks for a server.
func (w *wire) looking() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		w.parking.Do(func() { close(w.parked) })
	}
}

// shut cuts, refuses every further dial, and joins the tasks of the lines.
func (w *wire) shut() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cut()
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
