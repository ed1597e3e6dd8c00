package zkutil

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Auth is one credential for AddAuth.
type Auth struct {
	Scheme     string
	Credential []byte
}

// Config is what a session is made of. Package recipes fills in the defaults.
type Config struct {
	Servers          []string
	SessionTimeout   time.Duration // asked for; of an adopted connection: as told, 0 when unknown
	OperationTimeout time.Duration
	Dialer           zk.Dialer
	Hosts            zk.HostProvider
	TLS              *tls.Config
	Auth             []Auth
	ACL              []zk.ACL
	Retry            Retry
	SuspendEnds      bool                 // a hold ends when the connection does (StandardErrorPolicy)
	Logger           *slog.Logger         // nil: slog.Default(), as it is at each record
	Suspended        func() time.Duration // how long the machine has been suspended in all; nil: asks the system
}

// maxFrame bounds what the server may send: about 280,000 waiters in one listing.
const maxFrame = 16 << 20

// Session is one ZooKeeper session and whatever is held or awaited in it. Create
// it with [Connect] or [Adopt]. All methods may be called concurrently.
type Session struct {
	cfg      Config
	clock    *clock
	scope    scope              // of the user's functions
	wire     *wire              // nil on an adopted connection
	ended    chan struct{}      // closed when the owned zk.Conn has ended
	ctx      context.Context    // of the tasks; ends in Close
	cancel   context.CancelFunc // ends ctx
	slots    chan struct{}      // of calls that run apart
	calls    sync.WaitGroup     // requests in zk.Conn; joined in Close
	tasks    sync.WaitGroup     // our own goroutines; joined in Close
	done     <-chan struct{}    // closed when Close begins
	open     context.Context    // ends then
	shut     context.CancelFunc // ends open
	closing  sync.Once
	inPause  chan struct{} // closed when zk.Conn waits for its Close alone
	pausing  sync.Once
	quitting chan struct{} // closed when that comes
	over     chan struct{} // closed when nothing of the session is left but callbacks

	campaigns callbacks  // of candidates; joined in Close, while the session still stands
	callbacks callbacks  // the user's functions; joined in Close
	foreign   *foreign   // the user's dialer and host provider; joined in Close, for a while
	logs      *Callbacks // among them the handler behind cfg.Logger

	mu        sync.Mutex // protects everything below
	conn      *zk.Conn
	state     State
	connected bool // from handshake to disconnect
	id        int64
	epoch     uint64        // counts handshakes
	timeout   time.Duration // negotiated in the latest handshake; 0 while unknown
	created   time.Duration // negotiated in the handshake that made the session; 0 while unknown
	least     time.Duration // the least that any server has granted
	changed   chan struct{} // closed and replaced whenever something above changes
	closed    bool          // Close has begun: no new calls but cleanup
	sealed    bool          // no new tasks
	failure   error         // of the last dial or handshake
	hopeless  error         // why all servers refuse us, which another attempt does not change
	since     time.Time     // when connected was last changed
	trust     trust
	interest  int                 // how many reasons there are to keep the session proven
	wanted    time.Time           // since when interest is above zero
	wakeAt    time.Time           // when the keeper looks next; zero: when it is kicked
	nodes     map[string]struct{} // znodes of ours, for the heartbeat
	holds     map[string]*Hold    // by their znodes
	watches   map[watchKey]*Watch
	listers   map[listerKey]*listing // under way; the value is the next one, nil if nobody asked
	readers   map[*reader]struct{}
	kick      chan struct{} // wakes the keeper; capacity 1
}

func newSession(cfg Config) *Session {
	if cfg.Suspended == nil {
		cfg.Suspended = suspendedTime
	}
	ctx, cancel := context.WithCancel(context.Background()) // the session's own; Close ends it
	open, shut := context.WithCancelCause(ctx)
	s := &Session{
		cfg: cfg, clock: &clock{suspended: cfg.Suspended}, scope: newScope(), ctx: ctx, cancel: cancel, open: open, shut: func() { shut(errShut) }, done: open.Done(), timeout: cfg.SessionTimeout,
		ended: make(chan struct{}), inPause: make(chan struct{}), quitting: make(chan struct{}), over: make(chan struct{}), changed: make(chan struct{}), kick: make(chan struct{}, 1), slots: make(chan struct{}, maxApart),
		nodes: map[string]struct{}{}, holds: map[string]*Hold{},
		watches: map[watchKey]*Watch{}, listers: map[listerKey]*listing{}, readers: map[*reader]struct{}{},
	}
	s.foreign = &foreign{ctx: ctx, running: map[string]int{}}
	s.logs = s.Callbacks()
	return s
}

// Connect opens a session and returns once it stands and the credentials are
// accepted. Its error wraps the failure of the last dial or handshake. The context
// bounds nothing later.
func Connect(ctx context.Context, cfg Config) (*Session, error) {
	s := newSession(cfg)
	hosts := &hosts{ctx: s.ctx, inner: s.foreign.hostsOf(cfg.Hosts), resolve: cfg.Dialer == nil, patience: s.handshakePatience, haste: s.pauseOfRounds}
	dial := s.foreign.dialer(dialer(s.ctx, cfg, hosts.nameOf)) //nolint:contextcheck // dials go on when ctx is over
	s.wire = &wire{
		dial: func(network, address string, timeout time.Duration) (net.Conn, error) {
			if deadline, bounded := ctx.Deadline(); bounded && s.neverConnected() {
				timeout = min(timeout, time.Until(deadline)) // a dialer of the user's knows no context
			}
			if timeout <= 0 {
				return nil, s.whyNot()
			}
			return dial(network, address, timeout)
		},
		now:      s.clock.now,
		period:   s.period,
		servers:  hosts.addresses,
		patience: s.handshakePatience,
		isSaving: s.isSaving,
		greeted: func(id int64, timeout time.Duration, began time.Time) time.Duration {
			if id == 0 { // zk.Conn calls Connected only for a session
				hosts.reached()
				return 0
			}
			return s.onGreeting(id, timeout, began)
		},
		unanswered: s.onLostGreeting,
		proven:     func(w sentWrite) { s.recordAnswer(w, nil) },
		failed: func(address string, err error) {
			s.onFailure(err, hosts.failed(address, refusedByTLS(err)))
		},
		watches: map[watchKey]struct{}{},
	}
	s.background(s.keep)
	conn, events, err := zk.Connect(cfg.Servers, cfg.SessionTimeout,
		zk.WithDialer(s.wire.Dial),
		zk.WithHostProvider(hosts),
		zk.WithEventCallback(s.onEvent),
		zk.WithLogger(logAdapter{s}),
		zk.WithLogInfo(false),
		zk.WithMaxBufferSize(maxFrame))
	if err != nil {
		close(s.ended)
		_ = s.Close()
		return nil, err
	}
	go func() { // ends with zk.Conn's goroutine; joined in Close
		for range events { // the callback has seen them all
		}
		s.abort()
		close(s.ended)
	}()
	s.mu.Lock()
	s.conn = conn
	s.announce()
	s.mu.Unlock()
	if err := s.introduce(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// pauseOfRounds is haste; and until the first handshake zk.Conn's pause, so that Close can end it.
// Once Close has, it holds zk.Conn until Conn.Close has queued its request, in a millisecond at
// most: zk.Conn answers that when it then ends, while Conn.Close would wait a second for the
// answer if zk.Conn had ended before.
func (s *Session) pauseOfRounds() time.Duration {
	if !s.neverConnected() {
		return s.haste()
	}
	if s.ctx.Err() == nil {
		return time.Second
	}
	s.pausing.Do(func() { close(s.inPause) })
	<-s.quitting
	time.Sleep(time.Millisecond) //nolint:forbidigo // nothing tells of the request
	return 0
}

// introduce waits for the session and presents the credentials.
func (s *Session) introduce(ctx context.Context) error {
	if err := s.await(ctx, func() bool { return s.connected || s.hopeless != nil }); err != nil {
		return fmt.Errorf("%w: %w", err, s.whyNot())
	}
	if why := s.whyHopeless(); why != nil {
		return why
	}
	for _, auth := range s.cfg.Auth {
		_, err := retry(ctx, s.cfg.Retry, s.judge(ctx), func() (struct{}, error) {
			return do(ctx, s, request[struct{}]{run: func(conn *zk.Conn) (struct{}, error) {
				return struct{}{}, conn.AddAuth(auth.Scheme, auth.Credential)
			}})
		})
		if err != nil {
			return fmt.Errorf("authenticate with scheme %q: %w", auth.Scheme, err)
		}
	}
	return nil
}

// whyHopeless is not nil when no server will ever take us.
func (s *Session) whyHopeless() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connected {
		return nil
	}
	return s.hopeless
}

// whyNot says what is in the way of the first handshake.
func (s *Session) whyNot() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return s.failure
	}
	if l := s.wire.line(); l != nil {
		return fmt.Errorf("handshake with %s: no answer yet", l.RemoteAddr())
	}
	return errUnavailable
}

// Adopt tracks a session on a connection that belongs to someone else. It can't
// see the negotiated timeout nor cut the socket, so without cfg.SessionTimeout
// holds end at the first disconnect and there is no deadline.
func Adopt(conn *zk.Conn, events <-chan zk.Event, cfg Config) *Session {
	cfg.SuspendEnds = cfg.SuspendEnds || cfg.SessionTimeout == 0
	s := newSession(cfg)
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	s.background(s.keep)
	s.reconcile()
	s.background(func(ctx context.Context) {
		for {
			select {
			case event, ok := <-events:
				if !ok {
					s.abort()
					return
				}
				s.onEvent(event)
				s.reconcile()
			case <-ctx.Done():
				return
			}
		}
	})
	return s
}

// reconcile makes up for events that an adopted connection has dropped: its channel
// has six places, for watch events too. zk.Conn tells every attempt to connect, so
// another look always follows.
func (s *Session) reconcile() {
	s.mu.Lock()
	up, moved, connected := s.conn.State() == zk.StateHasSession, s.conn.SessionID() != s.id, s.connected
	s.mu.Unlock()
	switch {
	case connected && !up:
		s.onDisconnected()
	case up && (moved || !connected):
		s.onConnected()
	}
}

// Conn returns the connection. Calls made on it directly bypass the gate.
func (s *Session) Conn() *zk.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// Timeout returns the session timeout of the latest handshake, 0 while unknown.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}
