package session

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
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
	MaxBytes         int // of the paths of ephemeral znodes, four bytes for each included; 0: DefaultMaxBytes
	Retry            zkutil.Retry
	SuspendEnds      bool                 // a hold ends when the connection does (StandardErrorPolicy)
	Logger           *slog.Logger         // nil: slog.Default(), as it is at each record
	ID               []byte               // what others see of our contenders; nil: the host's name and the process
	SlowWait         time.Duration        // after which a wait is told in the log; 0: never
	Traces           []*Trace             // of the user; none of them is nil
	Suspended        func() time.Duration // how long the machine has been suspended in all; nil: asks the system
}

// Session is one ZooKeeper session, with its holds and watches. When the servers expire it, it goes
// on as the next session of the same connection. Create it with [Connect] or [Adopt]. All
// methods may be called concurrently.
//
// One mutex guards all of it, because a grant, a loss, a new connection and the end of all holds
// have to be one step each. The package comment says what may run under it.
type Session struct {
	cfg        Config
	clock      *clock
	scope      zkutil.Scope // of the user's functions
	wire       *wire.Wire   // nil on an adopted connection
	life       lifecycle
	hangUp     hangUp
	logs       *Callbacks // of the handler behind cfg.Logger
	traceCalls *Callbacks // of cfg.Traces: losses and changes of the state
	listings   listings
	timers     sync.Pool // of timers that are stopped, for waits that are mostly short
	shared     sharedValues
	budget     *budget // of ephemeral znodes

	multiReadsLost atomic.Int32 // answers, in a row: see CanFindEach

	mu         sync.Mutex // protects everything below, and what other types name it for
	conn       *zk.Conn
	state      State
	link       link
	shown      shown
	live       liveness
	changes    zkutil.Changes   // of state and link
	holds      map[string]*Hold // by their znodes
	newHolds   newHolds
	watches    map[wire.WatchKey]*Watch
	alone      aloneIn
	shortTasks shortTasks
	readers    map[*reader]struct{} // the subscriptions
	proving    chan struct{}        // closed when the proof that is under way was answered; nil: there is none
}

// link is the connection, as zk.Conn's events tell of it. Guarded by Session.mu.
type link struct {
	isConnected bool      // from the handshake to the disconnect
	changedAt   time.Time // when that was last changed
	epoch       uint64    // counts the handshakes
	id          int64     // of the session; 0: expired, and no other yet
	failure     error     // of the latest dial or handshake
	hopeless    error     // why all servers refuse us, where another attempt would not change that
}

func newSession(cfg Config) *Session {
	if cfg.Suspended == nil {
		cfg.Suspended = newSuspension().length
	}
	if cfg.ID == nil {
		cfg.ID = defaultID()
	}
	s := &Session{
		cfg: cfg, clock: &clock{suspended: cfg.Suspended}, scope: zkutil.NewScope(),
		budget: newBudget(cfg.MaxBytes), life: newLifecycle(), hangUp: newHangUp(), live: newLiveness(cfg.SessionTimeout),
		holds: map[string]*Hold{}, watches: map[wire.WatchKey]*Watch{}, alone: aloneIn{dirs: map[string]*alone{}},
		listings: listings{running: map[listKey]*listing{}}, readers: map[*reader]struct{}{},
		shared: sharedValues{values: map[any]any{}},
	}
	s.logs, s.traceCalls = s.Callbacks(), s.Callbacks()
	return s
}

// Connect opens a session, and returns once a server has made it and accepted the credentials. Its
// error wraps the failure of the latest dial or handshake. ctx bounds Connect alone.
func Connect(ctx context.Context, cfg Config) (*Session, error) {
	s := newSession(cfg)
	s.wire = wire.New(s.life.tasksCtx, wire.Config{Dialer: cfg.Dialer, Hosts: cfg.Hosts, TLS: cfg.TLS}, wireOwner{s, ctx}) //nolint:contextcheck // dials go on when ctx is over
	s.live.isOwn = true
	s.Background(s.keep)
	conn, events, err := zk.Connect(cfg.Servers, cfg.SessionTimeout,
		zk.WithDialer(s.wire.Dial),
		zk.WithHostProvider(s.wire.Provider()),
		zk.WithEventCallback(s.onEvent),
		zk.WithLogger(logAdapter{s}),
		zk.WithLogInfo(false),
		zk.WithMaxBufferSize(wire.MaxFrame))
	if err != nil {
		close(s.hangUp.connDone)
		_ = s.Close()
		return nil, err
	}
	go func() { // ends with zk.Conn's goroutine; joined in Close
		for range events { // onEvent has seen them all
		}
		s.beginClosing()
		close(s.hangUp.connDone)
	}()
	s.mu.Lock()
	s.conn = conn
	s.announceLocked()
	s.mu.Unlock()
	if err := s.authenticate(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// authenticate waits for the session and presents the credentials.
func (s *Session) authenticate(ctx context.Context) error {
	if err := s.awaitCondition(ctx, func() bool { return s.link.isConnected || s.link.hopeless != nil }); err != nil {
		return fmt.Errorf("%w: %w", err, s.whyNotConnected())
	}
	if why := s.whyHopeless(); why != nil {
		return why
	}
	for _, auth := range s.cfg.Auth {
		_, err := Repeat(ctx, s, func() (struct{}, error) { return struct{}{}, s.addAuth(ctx, auth) })
		if err != nil {
			return fmt.Errorf("authenticate with scheme %q: %w", auth.Scheme, err)
		}
	}
	return nil
}

// whyHopeless is why no server will ever accept us, nil if one may.
func (s *Session) whyHopeless() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link.isConnected {
		return nil
	}
	return s.link.hopeless
}

// whyNotConnected is why there has been no handshake yet.
func (s *Session) whyNotConnected() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link.failure != nil {
		return s.link.failure
	}
	if l := s.wire.Line(); l != nil {
		return fmt.Errorf("handshake with %s: no answer yet", l.RemoteAddr())
	}
	return zkutil.ErrUnavailable
}

// Adopt tracks a session on a connection that belongs to the caller. The session timeout that was
// negotiated is not visible there, and the socket can't be cut. So without cfg.SessionTimeout holds
// end at the first disconnect, and there is no deadline.
func Adopt(conn *zk.Conn, events <-chan zk.Event, cfg Config) *Session {
	cfg.SuspendEnds = cfg.SuspendEnds || cfg.SessionTimeout == 0
	s := newSession(cfg)
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	s.Background(s.keep)
	s.catchUpWithConn()
	s.Background(func(ctx context.Context) {
		for {
			select {
			case event, ok := <-events:
				if !ok {
					s.beginClosing()
					return
				}
				s.onEvent(event)
				s.catchUpWithConn()
			case <-ctx.Done():
				return
			}
		}
	})
	return s
}

// catchUpWithConn replaces events that an adopted connection has dropped: its channel has room for
// six, watch events included. Another look always follows, because zk.Conn sends an event for every
// attempt to connect.
func (s *Session) catchUpWithConn() {
	s.mu.Lock()
	isUp, isOther, wasUp := s.conn.State() == zk.StateHasSession, s.conn.SessionID() != s.link.id, s.link.isConnected
	s.mu.Unlock()
	switch {
	case wasUp && !isUp:
		s.onDisconnected()
	case isUp && (isOther || !wasUp):
		s.onConnected(s.Conn().Server())
	}
}

// Config returns what the session was made of.
func (s *Session) Config() Config { return s.cfg }

// Retry returns the retry policy. Unlike Config it needs little of the stack, for callers that wait for hours.
func (s *Session) Retry() zkutil.Retry { return s.cfg.Retry }

// SlowWait returns after which time a wait is told in the log, 0 for never.
func (s *Session) SlowWait() time.Duration { return s.cfg.SlowWait }

// TellsEveryEvent reports whether the events of all watches come, in order, before the answers to
// later requests. An own connection does that.
func (s *Session) TellsEveryEvent() bool { return s.wire != nil }

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
	return s.live.timeout
}
