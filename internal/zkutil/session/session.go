package session

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/departures"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/logs"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/ops"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/shared"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Login is one login over SASL.
type Login = wire.Login

// Mechanism begins a login on each connection.
type Mechanism = wire.Mechanism

// Auth is one credential for AddAuth.
type Auth struct {
	Scheme     string
	Credential []byte
}

// Config has the settings of a session. Package recipes fills in the defaults.
type Config struct {
	Servers          []string
	SessionTimeout   time.Duration // requested
	OperationTimeout time.Duration
	Dialer           zk.Dialer
	TLS              *tls.Config
	Network          dial.Network // of the system, where its fields are nil; unused with a Dialer except for TLS
	Auth             []Auth
	SASL             Mechanism // of the login on each connection; nil: none
	ACL              []zk.ACL
	Chroot           string // a directory that is never made, and none above it; "": none
	MaxBytes         int    // of the paths of ephemeral znodes, including four bytes for each; 0: budget.DefaultMaxBytes
	Retry            zkutil.Retry
	SuspendEnds      bool                 // a hold ends when the connection does (StandardErrorPolicy)
	Logger           *slog.Logger         // nil: slog.Default(), as it is at each record
	ID               []byte               // what others see of our contenders; nil: the host's name and the process
	SlowWait         time.Duration        // after which a wait is logged; 0: never
	SlowHold         time.Duration        // the same of a lock or a permit that is held
	Traces           []*trace.Hooks       // of the user; none of them is nil
	Suspended        func() time.Duration // how long the machine was suspended in all; nil: asks the system
}

// Session is one ZooKeeper session, with its holds and watches. When the servers expire the session, the
// Session continues as the next session of the same connection. Create a Session with [Connect] or [Open]. All
// methods may be called concurrently.
//
// One mutex guards all the state, because a grant, a loss, a new connection and the end of all holds have to be
// one step each. The package comment lists the code that may run under the mutex.
type Session struct {
	cfg       Config
	clock     *core.Clock
	scope     zkutil.Scope // of the user's functions
	callbacks *callbacks.Runner
	log       *logs.Logger
	wire      *wire.Wire
	life      lifecycle
	gate      gate
	report    report
	listings  listings
	shared    *shared.Values
	budget    *budget.Budget // of ephemeral znodes
	departing *departures.Set

	mu      sync.Mutex // protects everything below, and fields of other types that name Session.mu
	core    core.Session
	link    link
	keeper  keeper
	proofs  proofs
	holds   holds
	watches watches
	silence leftovers.Silence
}

func newSession(cfg Config) *Session {
	if cfg.ID == nil {
		cfg.ID = defaultID()
	}
	s := &Session{
		cfg: cfg, clock: core.NewClock(cfg.Suspended), scope: zkutil.NewScope(),
		life: newLifecycle(), gate: gate{optional: ops.NewOptional(), suspects: ops.NewSuspects()}, listings: listings{running: map[listKey]*listing{}},
		shared: shared.NewValues(), budget: budget.New(cfg.MaxBytes),
		core: core.NewSession(core.NewLedger(cfg.SessionTimeout, rand.Float64()), cfg.SuspendEnds),
		link: link{states: connstate.NewFeed()}, keeper: newKeeper(),
		holds: holds{byPath: map[string]*Hold{}}, watches: watches{byKey: map[wire.WatchKey]*Watch{}, doubted: map[*Watch]time.Time{}},
	}
	s.departing = departures.NewSet(cfg.OperationTimeout, s.life.open.Done())
	s.life.s, s.gate.s, s.report.s, s.link.s, s.keeper.s, s.proofs.s = s, s, s, s, s, s
	s.holds.s, s.watches.s = s, s
	s.callbacks = callbacks.NewRunner(s.scope, func(value any, stack []byte) { s.log.LogPanic(value, stack) })
	s.log = logs.New(s.life.tasksCtx, cfg.Logger, s.callbacks.NewSilentOrder())
	s.report.traceCalls = s.Callbacks()
	return s
}

// Connect opens a session, and returns once a server creates the session and accepts the credentials. The
// error wraps the failure of the latest dial or handshake. ctx bounds Connect alone.
func Connect(ctx context.Context, cfg Config) (*Session, error) {
	s, err := start(ctx, newSession(cfg))
	if err != nil {
		return nil, err
	}
	if err := s.link.authenticate(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// Open opens a session, and returns before any server is reached. The session is Suspended until the
// first handshake. See also warnWithoutServer.
func Open(cfg Config) (*Session, error) {
	s := newSession(cfg)
	s.gate.entry = entrance{isOpened: true, isDue: len(cfg.Auth) > 0}
	s, err := start(context.Background(), s)
	if err != nil {
		return nil, err
	}
	s.Background(s.gate.logIn)
	return s, nil
}

// start opens a connection, and waits for no server. dialCtx bounds the dials before the first handshake.
func start(dialCtx context.Context, s *Session) (*Session, error) {
	cfg := s.cfg
	s.wire = wire.New(s.life.tasksCtx, dial.Config{Dialer: cfg.Dialer, TLS: cfg.TLS, Network: cfg.Network, IsLogin: cfg.SASL != nil}, wireOwner{s, dialCtx}) //nolint:contextcheck // dials continue when ctx is over
	s.wire.SetMechanism(cfg.SASL)
	s.Background(s.keeper.keep)
	conn, events, err := zk.Connect(cfg.Servers, cfg.SessionTimeout,
		zk.WithDialer(s.wire.Dial),
		zk.WithHostProvider(s.wire.Dialer.Provider()),
		zk.WithEventCallback(s.link.onEvent),
		zk.WithLogger(s.log.OfConn()),
		zk.WithLogInfo(false),
		zk.WithMaxBufferSize(wire.MaxFrame))
	if err != nil {
		close(s.life.connEnd.done)
		_ = s.Close()
		return nil, err
	}
	go func() { // ends with zk.Conn's goroutine; joined in Close
		for range events { // onEvent saw them all
		}
		s.life.onConnEnded()
		close(s.life.connEnd.done)
	}()
	s.mu.Lock()
	s.link.conn = conn
	s.link.announceLocked()
	s.mu.Unlock()
	s.Background(s.link.warnWithoutServer)
	return s, nil
}

// Config returns the settings of the session.
func (s *Session) Config() Config { return s.cfg }

// Wire returns the wire beside zk.Conn.
func (s *Session) Wire() *wire.Wire { return s.wire }

// Conn returns the connection. Direct calls of its methods bypass the gate.
func (s *Session) Conn() *zk.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link.conn
}

// wireOwner is the session as its wire sees it.
type wireOwner struct {
	s       *Session
	connect context.Context //nolint:containedctx // of Connect, which bounds the dials before the first handshake
}

func (o wireOwner) Now() time.Time        { return o.s.clock.Now() }
func (o wireOwner) Period() time.Duration { return o.s.BeatPeriod() }

// LimitDial keeps the dials before the first handshake within the context of Connect, because the user's dialer
// gets no context.
func (o wireOwner) LimitDial(patience time.Duration) (time.Duration, error) {
	if deadline, isBounded := o.connect.Deadline(); isBounded && o.s.link.hasNeverConnected() {
		patience = min(patience, time.Until(deadline))
	}
	if patience <= 0 {
		return 0, o.s.link.whyNotConnected()
	}
	return patience, nil
}

func (o wireOwner) OnEvent(event int32, path string) { o.s.watches.fire(path, zk.EventType(event)) }

func (o wireOwner) OnCloseSession() { o.s.life.beginClosing() } // the user may close zk.Conn

func (o wireOwner) OnPanic(value any, stack []byte) { o.s.log.LogPanic(value, stack) }

// When a leader hangs, the other servers refuse clients until they elect a new leader. By then a hold has
// T/3 of trust left, so the client neither waits long for the silent server again nor pauses between rounds.

// maxPatienceFactor bounds the time for a handshake, as a multiple of T/6: 4T.
const maxPatienceFactor = 4 * core.BeatsPerTimeout

// Patience returns how long a dial or a handshake may take. While a hold can be saved the limit is at most T/6,
// to leave time for another server. Otherwise the limit doubles with each handshake that took too long, because
// a slow ensemble could otherwise never be reached.
func (o wireOwner) Patience() time.Duration {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.HasHoldToSave(s.clock.Now()) || s.wire == nil {
		return s.core.Period()
	}
	return s.core.Period() * time.Duration(min(1<<min(s.wire.Dialer.SlowHandshakes(), 16), maxPatienceFactor))
}

// IsSaving reports whether the session has a hold that would survive a reconnect before the end of trust.
func (o wireOwner) IsSaving() bool {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.HasHoldToSave(s.clock.Now())
}

// IsInUse reports whether a hold, a wait or a request needs the connection.
func (o wireOwner) IsInUse() bool {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.IsInUse()
}

// defaultID returns the data that contenders without their own data write into their znodes. The id is never
// empty, because Curator's participants could not read empty data.
func defaultID() []byte {
	host, _ := os.Hostname() // "" with an error
	return []byte(cmp.Or(host, "localhost") + "/" + strconv.Itoa(os.Getpid()))
}

// ID returns the data that contenders without their own data write into their znodes.
func (s *Session) ID() []byte { return s.cfg.ID }

// Shared returns the values that recipes of the session share.
func (s *Session) Shared() *shared.Values { return s.shared }

// Close is Shutdown with the default grace: an operation timeout for the functions of leaders and of Do, as long again for
// the records of those that returned, closeLimit for the session to end, a heartbeat period for the user's dialer and
// for lookups, and an operation timeout for other callbacks. Znodes left for the session's expiry are not an error of
// Close, only a log record.
func (s *Session) Close() error {
	if err := s.life.shutdown(grace{ctx: context.Background(), isDefault: true}); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// Shutdown ends every hold and wait with ErrClosed, waits for the functions of leaders, removes all leftovers
// in ZooKeeper, and joins every goroutine. The end of the session removes all znodes at once. Shutdown is
// idempotent. Inside a function of the user run by this session, Shutdown only requests the end. At the end of
// ctx Shutdown returns; the error says what is still running and which znodes are left, and the rest continues
// in the background.
func (s *Session) Shutdown(ctx context.Context) error {
	if err := s.life.shutdown(grace{ctx: ctx}); err != nil {
		return fmt.Errorf("shutdown: %w", err)
	}
	return nil
}

// Log hands a record to the user's logger, in the background.
func (s *Session) Log(level slog.Level, msg string, args ...any) {
	s.log.LogAbove(1, level, msg, args...)
}

// NewDepartureWait returns the wait of a try for the session's own departing contenders. See departures.Wait.
func (s *Session) NewDepartureWait() departures.Wait { return s.departing.NewWait() }

// MayWarnOf reports whether a warning about a directory is due, and if so counts the warning as given.
func (s *Session) MayWarnOf(dir string) bool { return s.log.MayWarnOf(dir) }

// NoteLeftOut is called for each call of a user's function skipped by TryPost.
func (s *Session) NoteLeftOut(function string) { s.log.NoteLeftOut(function) }
