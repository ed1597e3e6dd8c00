package zkutil

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
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
	SuspendEnds      bool // a hold ends when the connection does (StandardErrorPolicy)
	Logger           *slog.Logger
}

// maxFrame bounds what the server may send: about 280,000 waiters in one listing.
const maxFrame = 16 << 20

// Session is one ZooKeeper session and whatever is held or awaited in it. Create
// it with [Connect] or [Adopt]. All methods may be called concurrently.
type Session struct {
	cfg     Config
	wire    *wire              // nil on an adopted connection
	ended   chan struct{}      // closed when the owned zk.Conn has ended
	ctx     context.Context    // of the tasks; ends in Close
	cancel  context.CancelFunc // ends ctx
	slots   chan struct{}      // of calls that run apart
	calls   sync.WaitGroup     // requests in zk.Conn; joined in Close
	tasks   sync.WaitGroup     // our own goroutines; joined in Close
	done    <-chan struct{}    // closed when Close begins
	open    context.Context    // ends then
	shut    context.CancelFunc // ends open
	closing sync.Once
	over    chan struct{} // closed when nothing of the session is left but callbacks

	campaigns callbacks  // of candidates; joined in Close, while the session still stands
	callbacks callbacks  // the user's functions; joined in Close
	logs      *Callbacks // among them the handler behind cfg.Logger

	mu        sync.Mutex // protects everything below
	conn      *zk.Conn
	state     State
	connected bool // from handshake to disconnect
	id        int64
	epoch     uint64        // counts handshakes
	timeout   time.Duration // negotiated; 0 while unknown
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
	ctx, cancel := context.WithCancel(context.Background()) // the session's own; Close ends it
	open, shut := context.WithCancelCause(ctx)
	s := &Session{
		cfg: cfg, ctx: ctx, cancel: cancel, open: open, shut: func() { shut(errShut) }, done: open.Done(), timeout: cfg.SessionTimeout,
		ended: make(chan struct{}), over: make(chan struct{}), changed: make(chan struct{}), kick: make(chan struct{}, 1), slots: make(chan struct{}, maxApart),
		nodes: map[string]struct{}{}, holds: map[string]*Hold{},
		watches: map[watchKey]*Watch{}, listers: map[listerKey]*listing{}, readers: map[*reader]struct{}{},
	}
	s.logs = s.Callbacks()
	s.background(s.keep)
	return s
}

// Connect opens a session and returns once it stands and the credentials are
// accepted. Its error wraps the failure of the last dial or handshake. The context
// bounds nothing later.
func Connect(ctx context.Context, cfg Config) (*Session, error) {
	s := newSession(cfg)
	hosts := &hosts{ctx: s.ctx, inner: cfg.Hosts, resolve: cfg.Dialer == nil, patience: s.patience, looking: func() { s.wire.looking() }, haste: s.haste}
	s.wire = &wire{
		dial:     dialer(s.ctx, cfg, hosts.nameOf), //nolint:contextcheck // dials go on when ctx is over
		patience: s.patience,
		greeted: func(id int64, timeout time.Duration, began time.Time) {
			if id == 0 { // zk.Conn calls Connected only for a session
				hosts.reached()
				return
			}
			s.onGreeting(id, timeout, began)
		},
		failed: func(address string, err error) {
			s.onFailure(err, hosts.failed(address, refusedByTLS(err)))
		},
		watches: map[watchKey]struct{}{},
		parked:  make(chan struct{}),
	}
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

// introduce waits for the session and presents the credentials.
func (s *Session) introduce(ctx context.Context) error {
	if err := s.await(ctx, func() bool { return s.connected || s.hopeless != nil }); err != nil {
		return fmt.Errorf("%w: %w", err, s.whyNot())
	}
	if why := s.whyHopeless(); why != nil {
		return why
	}
	for _, auth := range s.cfg.Auth {
		_, err := retry(ctx, s.cfg.Retry, transient, func() (struct{}, error) {
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
