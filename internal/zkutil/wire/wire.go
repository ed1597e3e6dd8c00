package wire

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// Wire dials for one zk.Conn and reads the frames that pass. The package comment lists the features added to
// zk.Conn.
type Wire struct {
	Dialer *dial.Dialer // chooses the servers and opens the sockets
	owner  owner

	mechanism Mechanism // of the login on each connection; nil: none

	tasks     sync.WaitGroup // of the lines; joined in Close
	isHolding atomic.Bool    // set by the owner if the session holds something
	isInUse   atomic.Bool    // set by the owner: something is held, awaited or asked for
	isBound   atomic.Bool    // see IsBound

	mu               sync.Mutex // protects the fields below
	current          *Line
	abandoned        []*Line // see Line.Abandon
	isClosed         bool
	isSessionEnded   bool                  // a server confirmed the close of the session
	watches          map[WatchKey]struct{} // the watches registered by zk.Conn
	passEvents       bool                  // zk.Conn may have watches of other kinds
	credentials      []credential          // presented again by zk.Conn on each connection
	lastZxid         int64                 // the latest in an answer to a request of the engine's own, in this session
	refusals         refusals              // of the session, since the latest answered handshake
	probing          net.Conn              // of the running probe; nil: none
	queuedSetWatches int                   // unwritten requests of zk.Conn to set the watches again
}

// owner is the session served by a wire. Several goroutines call the methods of the owner, without a lock that the
// owner may take, in the order of locks.
type owner interface {
	dial.Owner

	// Now returns the time by the owner's clock. Now takes no lock but the clock's.
	Now() time.Time
	// Period returns the time between two heartbeats.
	Period() time.Duration
	// GiveUpAfter returns for how long all servers have to refuse the session before the wire may give up the
	// session.
	GiveUpAfter() time.Duration
	// OnForgotten is called when the session is abandoned, because server lost transactions that the session has
	// seen.
	OnForgotten(server string)
	// OnGranted is called when a server answered a handshake that began at beganAt, before the login, which may fail.
	// A session is known from OnHandshake on.
	OnGranted(id int64, timeout time.Duration, beganAt time.Time)
	// OnHandshake is called when a handshake is completed, just before zk.Conn reports it. OnHandshake returns
	// the timeout by which the session has to be kept alive.
	OnHandshake(id int64, timeout time.Duration) (lifetime time.Duration)
	// OnEvent is called, in the order of the connection, with the type and the path of an event of a watch not
	// set by zk.Conn.
	OnEvent(event int32, path string)
	// OnCloseSession is called before zk.Conn's request to close the session is sent.
	OnCloseSession()
	// OnLateProof is called when a write was committed on an abandoned connection.
	OnLateProof(w SentWrite)
}

// SentWrite is a write in flight.
type SentWrite struct {
	At   time.Time // shortly before sending
	ID   int64     // of its session
	Line *Line     // of its connection
}

// New returns a wire that dials until ctx ends.
func New(ctx context.Context, cfg dial.Config, o owner) *Wire {
	return &Wire{Dialer: dial.New(ctx, cfg, o), owner: o, watches: map[WatchKey]struct{}{}}
}

// SetMechanism makes the wire log in on each connection, with logIn. Call SetMechanism before the first Dial.
func (w *Wire) SetMechanism(mechanism Mechanism) { w.mechanism = mechanism }

// Dial is the zk.Dialer of the connection. server is a string returned by Next of [dial.Dialer.Provider]. The owner's patience
// replaces the timeout that zk.Conn asks for.
func (w *Wire) Dial(network, server string, _ time.Duration) (net.Conn, error) {
	w.Disconnect()
	if w.hasClosed() {
		return nil, net.ErrClosed
	}
	conn, attempt, err := w.Dialer.Dial(network, server)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(attempt.Patience)); err != nil { // not under w.mu: conn may be the user's
		_ = conn.Close()
		return nil, err
	}
	l := newLine(w, conn, attempt)
	l.deadline = time.Now().Add(attempt.Patience)
	if !w.setCurrent(l) {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return l, nil
}

// setCurrent makes a line the latest one, unless the wire was closed.
func (w *Wire) setCurrent(l *Line) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed {
		return false
	}
	w.current = l
	return true
}

// goLocked runs a task of a line, for which Close waits. A closed wire starts no task.
func (w *Wire) goLocked(task func()) {
	if !w.isClosed {
		w.tasks.Go(task)
	}
}

// IsSessionEnded reports whether a server confirmed the close of the session at zk.Conn's request.
func (w *Wire) IsSessionEnded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isSessionEnded
}

func (w *Wire) hasClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isClosed
}

// Line returns the latest connection, nil before the first.
func (w *Wire) Line() *Line {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// Disconnect closes the socket, so that zk.Conn tries the next server.
func (w *Wire) Disconnect() {
	if l := w.Line(); l != nil {
		_ = l.Close()
	}
}

// AddTo adds the facts of the latest connection to the facts for a decision.
func (w *Wire) AddTo(f *core.Facts) {
	if l := w.Line(); l != nil {
		l.contact.addTo(f)
	}
}

// SetHolding notes whether the session holds something.
func (w *Wire) SetHolding(isHolding bool) { w.isHolding.Store(isHolding) }

// SetInUse notes whether anything is held, awaited or asked for. An idle session pings less.
func (w *Wire) SetInUse(isInUse bool) { w.isInUse.Store(isInUse) }

// Close disconnects, refuses every further dial, and waits for the tasks of the lines.
func (w *Wire) Close() {
	w.mu.Lock()
	w.isClosed = true
	probing := w.probing
	w.mu.Unlock()
	if probing != nil {
		_ = probing.Close()
	}
	w.Disconnect()
	w.dropAllAbandoned()
	w.tasks.Wait()
}
