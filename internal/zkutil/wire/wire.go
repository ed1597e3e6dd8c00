package wire

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Wire dials for one zk.Conn and reads the frames that pass. The package comment lists what it adds.
type Wire struct {
	owner    owner
	dial     dialFunc
	hosts    *hosts
	userCode *userCode

	tasks     sync.WaitGroup // of the lines; joined in Close
	isHolding atomic.Bool    // set by the owner: the session holds something
	isInUse   atomic.Bool    // set by the owner: something is held, awaited or asked for

	mu                sync.Mutex // protects what is below
	current           *Line
	lastAddress       string               // of the latest dial
	silentAt          map[string]time.Time // when a server last gave no answer within all patience, by address
	lastHandshakeTook time.Duration        // the latest dial and handshake that succeeded
	slowHandshakes    int                  // handshakes in a row that took too long
	abandoned         []*Line              // see Line.Abandon
	isClosed          bool
	watches           map[WatchKey]struct{} // the watches that zk.Conn has registered
	passEvents        bool                  // zk.Conn may have watches of other kinds
	credentials       []credential          // which zk.Conn presents again on each connection
	lastZxid          int64                 // the latest that an answer to a request of our own had, in this session
	queuedSetWatches  int                   // requests to set the watches again that zk.Conn has not written yet
}

// owner is the session that a wire works for. Its methods are called from several goroutines. The
// wire calls them without a lock that the owner may ask for: see the order of locks.
type owner interface {
	// Now is the time by the owner's clock. It takes no lock but the clock's.
	Now() time.Time
	// Period is the time between two heartbeats.
	Period() time.Duration
	// Patience is how long a dial or a handshake may take.
	Patience() time.Duration
	// LimitDial returns how much of patience a dial may take, or an error if no time is left.
	LimitDial(patience time.Duration) (time.Duration, error)
	// RoundPause is the pause between two rounds of attempts at all servers; 0 stands for zk.Conn's
	// own. It may block until the session ends.
	RoundPause() time.Duration
	// IsSaving reports whether a hold can outlive a reconnect.
	IsSaving() bool
	// OnHandshake is called when a handshake that began at beganAt has been answered, just before
	// zk.Conn reports it. It returns the timeout by which the session has to be kept alive.
	OnHandshake(id int64, timeout time.Duration, beganAt time.Time) (lifetime time.Duration)
	// OnLostHandshake is called when a handshake has failed after its request was sent.
	OnLostHandshake(beganAt time.Time)
	// OnEvent is called, in the order of the connection, with the type and the path of an event of a watch that
	// zk.Conn has not set.
	OnEvent(event int32, path string)
	// OnLateProof is called when a write was committed on an abandoned connection.
	OnLateProof(w SentWrite)
	// OnFailure is called when a dial or a handshake has failed. isHopeless means that every attempt
	// at every server will fail in this way.
	OnFailure(err error, isHopeless bool)
}

// Config is what a wire is made of.
type Config struct {
	Dialer zk.Dialer       // the user's; nil: net.Dialer
	Hosts  zk.HostProvider // the user's; nil: the servers that zk.Connect is given
	TLS    *tls.Config     // nil: plain TCP
}

// SentWrite is a write in flight.
type SentWrite struct {
	At   time.Time // shortly before it was sent
	ID   int64     // of its session
	Line *Line     // of its connection; nil on an adopted connection
}

// New returns a wire that dials until ctx ends.
func New(ctx context.Context, cfg Config, o owner) *Wire {
	w := &Wire{owner: o, userCode: &userCode{ctx: ctx, running: map[string]int{}}, watches: map[WatchKey]struct{}{}}
	w.hosts = &hosts{ctx: ctx, inner: w.userCode.wrapHosts(cfg.Hosts), isResolving: cfg.Dialer == nil, patience: o.Patience, roundPause: o.RoundPause}
	w.dial = w.userCode.limitDialer(newDialer(ctx, cfg, w.hosts.nameOf)) //nolint:contextcheck // the session's context is in userCode
	return w
}

// Dial is the zk.Dialer of the connection. The owner's patience replaces the timeout that zk.Conn
// asks for.
func (w *Wire) Dial(network, address string, _ time.Duration) (net.Conn, error) {
	w.Disconnect()
	if w.hasClosed() {
		return nil, net.ErrClosed
	}
	patience, isFull := w.handshakePatience(address)
	dialledAt := time.Now()
	conn, err := w.dialWithin(patience, network, address)
	if err != nil {
		w.noteTimeout(address, isFull, err)
		w.noteFailure(address, err)
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil { // not under w.mu: conn may be the user's
		_ = conn.Close()
		return nil, err
	}
	l := newLine(w, conn, address, dialledAt, isFull)
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

func (w *Wire) dialWithin(patience time.Duration, network, address string) (net.Conn, error) {
	limit, err := w.owner.LimitDial(patience)
	if err != nil {
		return nil, err
	}
	return w.dial(network, address, limit)
}

func (w *Wire) hasClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isClosed
}

// noteFailure reports a dial or a handshake that has failed.
func (w *Wire) noteFailure(address string, err error) {
	w.owner.OnFailure(err, w.hosts.noteFailure(address, isRefusedByTLS(err)))
}

// noteHandshake reports a handshake that was answered. id 0 stands for an expired session, for which
// zk.Conn does not call HostProvider.Connected.
func (w *Wire) noteHandshake(id int64, timeout time.Duration, beganAt time.Time) (lifetime time.Duration) {
	if id == 0 {
		w.hosts.noteAnswer()
		return 0
	}
	return w.owner.OnHandshake(id, timeout, beganAt)
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

// LastByteAt returns when bytes of an answer came last.
func (w *Wire) LastByteAt() time.Time {
	if l := w.Line(); l != nil {
		return l.contact.lastByteAt()
	}
	return time.Time{}
}

// LastWriteAnsweredAt returns when the latest answer to a write came; a refusal is an answer too.
func (w *Wire) LastWriteAnsweredAt() time.Time {
	if l := w.Line(); l != nil {
		return l.contact.lastWriteAnsweredAt()
	}
	return time.Time{}
}

// ReadSentAt returns when the oldest of the engine's own requests was sent that has no answer, zero if there is none, and while
// a write is in flight.
func (w *Wire) ReadSentAt() time.Time {
	if l := w.Line(); l != nil {
		return l.contact.readSentAt()
	}
	return time.Time{}
}

// HasProofInFlight reports whether a write has not been answered yet.
func (w *Wire) HasProofInFlight() bool {
	l := w.Line()
	return l != nil && l.contact.hasProofInFlightAfter(time.Time{})
}

// SetHolding notes whether the session holds something.
func (w *Wire) SetHolding(isHolding bool) { w.isHolding.Store(isHolding) }

// SetInUse notes whether anything is held, awaited or asked for. An idle session pings less.
func (w *Wire) SetInUse(isInUse bool) { w.isInUse.Store(isInUse) }

// Addresses returns how many addresses there are to try. It takes no lock.
func (w *Wire) Addresses() int { return w.hosts.countAddresses() }

// Provider returns the zk.HostProvider that goes with Dial.
func (w *Wire) Provider() zk.HostProvider { return w.hosts }

// FinishUserCalls refuses further calls of the user's dialer and host provider. The channel is closed
// once those that run have returned.
func (w *Wire) FinishUserCalls() <-chan struct{} { return w.userCode.calls.Finish() }

// Close disconnects, refuses every further dial, and waits for the tasks of the lines.
func (w *Wire) Close() {
	w.mu.Lock()
	w.isClosed = true
	w.mu.Unlock()
	w.Disconnect()
	w.dropAllAbandoned()
	w.tasks.Wait()
}
