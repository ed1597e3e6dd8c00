package zkutil

import (
	"context"
	"crypto/tls"
	"errors"
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
	events  <-chan zk.Event    // closed when zk.Conn has ended
	ctx     context.Context    // of the tasks; ends in Close
	cancel  context.CancelFunc // ends ctx
	calls   sync.WaitGroup     // requests in zk.Conn; joined in Close
	tasks   sync.WaitGroup     // our own goroutines; joined in Close
	done    chan struct{}      // closed when Close begins
	closed  sync.Once
	closeEr error

	callbacks callbacks // the user's functions

	mu        sync.Mutex // protects everything below
	conn      *zk.Conn
	state     State
	connected bool // from handshake to disconnect
	id        int64
	epoch     uint64        // counts handshakes
	timeout   time.Duration // negotiated; 0 while unknown
	changed   chan struct{} // closed and replaced whenever something above changes
	closing   bool          // Close has begun: no new calls but cleanup
	sealed    bool          // no new tasks
	failure   error         // of the last dial or handshake
	since     time.Time     // when connected was last changed
	trust     trust
	interest  int                 // how many reasons there are to keep the session proven
	wanted    time.Time           // since when interest is above zero
	wakeAt    time.Time           // when the keeper looks next; zero: when it is kicked
	nodes     map[string]struct{} // znodes of ours, for the heartbeat
	holds     map[*Hold]struct{}
	watches   map[string]*Watch
	readers   map[*reader]struct{}
	kick      chan struct{} // wakes the keeper; capacity 1
}

func newSession(cfg Config) *Session {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Session{
		cfg: cfg, ctx: ctx, cancel: cancel, timeout: cfg.SessionTimeout,
		done: make(chan struct{}), changed: make(chan struct{}), kick: make(chan struct{}, 1),
		nodes: map[string]struct{}{}, holds: map[*Hold]struct{}{},
		watches: map[string]*Watch{}, readers: map[*reader]struct{}{},
	}
	s.callbacks.log = cfg.Logger
	s.background(s.keep)
	return s
}

// Connect opens a session and returns once it stands and the credentials are
// accepted. Its error wraps the failure of the last dial or handshake. The context
// bounds nothing later.
func Connect(ctx context.Context, cfg Config) (*Session, error) {
	s := newSession(cfg)
	hosts := &hosts{ctx: s.ctx, inner: cfg.Hosts, resolve: cfg.Dialer == nil, patience: s.patience}
	s.wire = &wire{
		dial:     dialer(s.ctx, cfg, hosts.nameOf),
		patience: s.patience,
		greeted:  s.onGreeting,
		failed:   s.onFailure,
		watches:  map[watchKey]struct{}{},
	}
	conn, events, err := zk.Connect(cfg.Servers, cfg.SessionTimeout,
		zk.WithDialer(s.wire.Dial),
		zk.WithHostProvider(hosts),
		zk.WithEventCallback(s.onEvent),
		zk.WithLogger(logAdapter{cfg.Logger.Debug}),
		zk.WithLogInfo(false),
		zk.WithMaxBufferSize(maxFrame))
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	s.mu.Lock()
	s.conn, s.events = conn, events
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
	if err := s.await(ctx, func() bool { return s.connected }); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.failure != nil {
			err = fmt.Errorf("%w: %w", err, s.failure)
		}
		return err
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

// Adopt tracks a session on a connection that belongs to someone else. It can't
// see the negotiated timeout nor cut the socket, so without cfg.SessionTimeout
// holds end at the first disconnect and there is no deadline.
func Adopt(conn *zk.Conn, events <-chan zk.Event, cfg Config) *Session {
	cfg.SuspendEnds = cfg.SuspendEnds || cfg.SessionTimeout == 0
	s := newSession(cfg)
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	if conn.State() == zk.StateHasSession {
		s.onEvent(zk.Event{Type: zk.EventSession, State: zk.StateHasSession})
	}
	s.background(func(ctx context.Context) {
		for {
			select {
			case event, ok := <-events:
				if !ok {
					s.onEvent(zk.Event{Type: zk.EventSession, State: zk.StateDisconnected})
					return
				}
				s.onEvent(event)
			case <-ctx.Done():
				return
			}
		}
	})
	return s
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

// Retry is the policy of the session's recipes.
func (s *Session) Retry() Retry { return s.cfg.Retry }

// Logger is where the session's recipes log.
func (s *Session) Logger() *slog.Logger { return s.cfg.Logger }

// hostAddress is what a znode says when it was given no data: the host's address,
// as with Curator. Never empty, for Curator's participants must be able to read it.
func (s *Session) hostAddress() string {
	if s.wire != nil {
		if address := s.wire.localAddress(); address != "" {
			return address
		}
	}
	if addresses, err := net.InterfaceAddrs(); err == nil {
		for _, address := range addresses {
			if ip, ok := address.(*net.IPNet); ok && !ip.IP.IsLoopback() {
				return ip.IP.String()
			}
		}
	}
	return "127.0.0.1"
}

// background runs a task of the session: task must return soon after its context
// ends. It reports false, and runs nothing, once the session is closed.
func (s *Session) background(task func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backgroundLocked(task)
}

func (s *Session) backgroundLocked(task func(ctx context.Context)) bool {
	if s.sealed {
		return false
	}
	s.tasks.Add(1)
	go func() { // owned by the session; ends with s.ctx; joined in Close
		defer s.tasks.Done()
		task(s.ctx)
	}()
	return true
}

// tidy runs a task that removes what we left in ZooKeeper. It counts as a reason to
// keep the session proven, and Close gives it time on an adopted connection.
func (s *Session) tidy(task func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidyLocked(task)
}

func (s *Session) tidyLocked(task func(ctx context.Context)) {
	if s.backgroundLocked(func(ctx context.Context) {
		task(ctx)
		s.mu.Lock()
		s.attend(-1)
		s.mu.Unlock()
	}) {
		s.attend(+1)
	}
}

// Close ends every hold and wait with ErrClosed, removes what they left in
// ZooKeeper, and joins every goroutine. On an own connection closing the session
// removes all znodes at once; on an adopted one each is deleted, for at most an
// operation timeout, and the connection stays open. It is idempotent.
func (s *Session) Close() error {
	s.closed.Do(func() { s.closeEr = s.close() })
	return s.closeEr
}

func (s *Session) close() error {
	s.mu.Lock()
	s.closing = true
	close(s.done)
	for hold := range s.holds {
		hold.endLocked(ErrClosed)
	}
	s.enterState(Closed)
	s.announce()
	s.mu.Unlock()

	if s.wire == nil { // the znodes outlive us unless we delete them
		s.drain(s.cfg.OperationTimeout, func() bool { return s.interest == 0 })
	}
	s.mu.Lock()
	s.sealed = true
	s.mu.Unlock()
	s.cancel()
	s.tasks.Wait()
	if s.wire != nil {
		s.hangUp()
	}
	s.calls.Wait()
	if !s.callbacks.wait(s.cfg.OperationTimeout) {
		return errors.New("close: a callback is still running")
	}
	return nil
}

// hangUp ends the owned zk.Conn. No call may be in flight then: zk.Conn would
// return its result while still writing to it. Calls that a dead server does not
// answer are failed by cutting the socket.
func (s *Session) hangUp() {
	idle := make(chan struct{})
	go func() { // ends with the calls, which the steps below see to; joined by the last receive
		s.calls.Wait()
		close(idle)
	}()
	answered := func() bool {
		limit := time.NewTimer(s.patience())
		defer limit.Stop()
		select {
		case <-idle:
			return true
		case <-limit.C:
			return false
		}
	}
	if !answered() {
		s.wire.cut()
		if !answered() {
			s.wire.shut()
		}
	}
	<-idle
	if conn := s.Conn(); conn != nil {
		conn.Close()
		s.wire.shut()
		for range s.events { //nolint:revive // wait for zk.Conn's goroutine
		}
	}
	s.wire.shut()
}
