package session

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trust"
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
	SessionTimeout   time.Duration // requested; of an adopted connection: as given by the user, 0 when unknown
	OperationTimeout time.Duration
	Dialer           zk.Dialer
	Hosts            zk.HostProvider
	TLS              *tls.Config
	Network          dial.Network // of the system, where its fields are nil; unused with a Dialer except for TLS
	Auth             []Auth
	SASL             Mechanism // of the login on each connection; nil: none
	TrackEnsemble    bool      // follow the ensemble's configuration: see track
	ACL              []zk.ACL
	MaxBytes         int // of the paths of ephemeral znodes, including four bytes for each; 0: budget.DefaultMaxBytes
	Retry            zkutil.Retry
	SuspendEnds      bool                 // a hold ends when the connection does (StandardErrorPolicy)
	Logger           *slog.Logger         // nil: slog.Default(), as it is at each record
	ID               []byte               // what others see of our contenders; nil: the host's name and the process
	SlowWait         time.Duration        // after which a wait is told in the log; 0: never
	SlowHold         time.Duration        // the same of a lock or a permit that is held
	Traces           []*Trace             // of the user; none of them is nil
	Suspended        func() time.Duration // how long the machine has been suspended in all; nil: asks the system
}

// Session is one ZooKeeper session, with its holds and watches. When the servers expire the session, the
// Session continues as the next session of the same connection. Create a Session with [Connect] or [Adopt]. All
// methods may be called concurrently.
//
// One mutex guards all the state, because a grant, a loss, a new connection and the end of all holds have to be
// one step each. The package comment lists the code that may run under the mutex.
type Session struct {
	cfg      Config
	clock    *trust.Clock
	scope    zkutil.Scope // of the user's functions
	wire     *wire.Wire   // nil on an adopted connection
	life     lifecycle
	gate     gate
	report   report
	listings listings
	timers   timers
	shared   sharedValues
	budget   *budget.Budget // of ephemeral znodes

	mu         sync.Mutex // protects everything below, and fields of other types that name Session.mu
	link       link
	ledger     trust.Ledger
	keeper     keeper
	proofs     proofs
	holds      holds
	watches    watches
	silence    silence
	shortTasks shortTasks
}

func newSession(cfg Config, isOwn bool) *Session {
	if cfg.ID == nil {
		cfg.ID = defaultID()
	}
	s := &Session{
		cfg: cfg, clock: trust.NewClock(cfg.Suspended), scope: zkutil.NewScope(),
		life: newLifecycle(), gate: gate{optional: newOptionalOps(), hangUps: newHangUps()}, listings: listings{running: map[listKey]*listing{}},
		shared: sharedValues{values: map[any]any{}}, budget: budget.New(cfg.MaxBytes),
		link: link{readers: map[*reader]struct{}{}}, ledger: trust.NewLedger(cfg.SessionTimeout, isOwn, rand.Float64()), keeper: newKeeper(),
		holds: holds{byPath: map[string]*Hold{}}, watches: watches{byKey: map[wire.WatchKey]*Watch{}},
	}
	s.life.s, s.gate.s, s.report.s, s.link.s, s.keeper.s, s.proofs.s = s, s, s, s, s, s
	s.holds.s, s.watches.s, s.silence.s, s.shortTasks.s = s, s, s, s
	s.report.logs, s.report.traceCalls = s.Callbacks(), s.Callbacks()
	return s
}

// Connect opens a session, and returns once a server has created the session and accepted the credentials. The
// error wraps the failure of the latest dial or handshake. ctx bounds Connect alone.
func Connect(ctx context.Context, cfg Config) (*Session, error) {
	s, err := start(ctx, ctx, newSession(cfg, true))
	if err != nil {
		return nil, err
	}
	if err := s.link.authenticate(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	s.link.awaitTracked(ctx)
	return s, nil
}

// start opens a connection, and waits for no server. initCtx bounds the Init of the user's host provider,
// and dialCtx the dials before the first handshake.
func start(initCtx, dialCtx context.Context, s *Session) (*Session, error) {
	cfg := s.cfg
	s.wire = wire.New(s.life.tasksCtx, dial.Config{Dialer: cfg.Dialer, Hosts: cfg.Hosts, TLS: cfg.TLS, Network: cfg.Network}, wireOwner{s, dialCtx}) //nolint:contextcheck // dials go on when ctx is over
	s.wire.SetMechanism(cfg.SASL)
	s.Background(s.keeper.keep)
	conn, events, err := zk.Connect(cfg.Servers, cfg.SessionTimeout,
		zk.WithDialer(s.wire.Dial),
		zk.WithHostProvider(s.wire.Dialer.Provider(initCtx)),
		zk.WithEventCallback(s.link.onEvent),
		zk.WithLogger(logAdapter{s}),
		zk.WithLogInfo(false),
		zk.WithMaxBufferSize(wire.MaxFrame))
	if err != nil {
		close(s.life.hangUp.connDone)
		_ = s.Close()
		return nil, err
	}
	go func() { // ends with zk.Conn's goroutine; joined in Close
		for range events { // onEvent has seen them all
		}
		s.life.onConnEnded()
		close(s.life.hangUp.connDone)
	}()
	s.mu.Lock()
	s.link.conn = conn
	s.link.announceLocked()
	s.mu.Unlock()
	if cfg.TrackEnsemble {
		s.link.tracked = make(chan struct{})
		s.Background(s.link.track)
	}
	return s, nil
}

// Adopt tracks a session on a connection owned by the caller. The negotiated session timeout is not visible
// there, and the socket can't be cut. So without cfg.SessionTimeout holds end at the first disconnect, and have
// no deadline.
func Adopt(conn *zk.Conn, events <-chan zk.Event, cfg Config) *Session {
	cfg.SuspendEnds = cfg.SuspendEnds || cfg.SessionTimeout == 0
	s := newSession(cfg, false)
	s.mu.Lock()
	s.link.conn = conn
	s.mu.Unlock()
	s.Background(s.keeper.keep)
	s.link.catchUpWithConn()
	s.Background(func(ctx context.Context) {
		for {
			select {
			case event, ok := <-events:
				if !ok {
					s.life.onConnEnded()
					return
				}
				s.link.onEvent(event)
				s.link.catchUpWithConn()
			case <-ctx.Done():
				return
			}
		}
	})
	return s
}

// Config returns the settings of the session.
func (s *Session) Config() Config { return s.cfg }

// Retry returns the retry policy. Unlike Config, Retry needs little stack, for callers that wait for hours.
func (s *Session) Retry() zkutil.Retry { return s.cfg.Retry }

// SlowWait returns after which time a wait is logged, 0 for never.
func (s *Session) SlowWait() time.Duration { return s.cfg.SlowWait }

// TellsEveryEvent reports whether the events of all watches come, in order, before the answers to later
// requests, as on an own connection.
func (s *Session) TellsEveryEvent() bool { return s.wire != nil }

// Conn returns the connection. Direct calls of its methods bypass the gate.
func (s *Session) Conn() *zk.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link.conn
}

// Timeout returns the session timeout of the latest handshake, 0 while unknown.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.Timeout()
}

// wireOwner is the session as its wire sees it.
type wireOwner struct {
	s       *Session
	connect context.Context //nolint:containedctx // of Connect, which bounds the dials before the first handshake
}

func (o wireOwner) Now() time.Time        { return o.s.clock.Now() }
func (o wireOwner) Period() time.Duration { return o.s.keeper.beatPeriod() }

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

func (o wireOwner) OnCloseSession() { o.s.life.beginClosing() } // the user may have closed zk.Conn

func (o wireOwner) OnPanic(value any, stack []byte) { o.s.report.logPanic(value, stack) }

// When a leader hangs, the other servers refuse clients until they have elected a new one. By then a hold has
// T/3 of trust left, so the client neither waits long for the silent server again nor pauses between rounds.

// shortestPause protects servers that refuse the client from clients with a short session timeout.
const shortestPause = 250 * time.Millisecond

// maxPatienceFactor bounds the time for a handshake, as a multiple of T/6: 4T.
const maxPatienceFactor = 4 * trust.BeatsPerTimeout

// Patience returns how long a dial or a handshake may take. While a hold can be saved the limit is at most T/6,
// to leave time for another server. Otherwise the limit doubles with each handshake that took too long, because
// a slow ensemble could otherwise never be reached.
func (o wireOwner) Patience() time.Duration {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds.hasOneToSaveLocked() || s.wire == nil {
		return s.ledger.PatienceToSave()
	}
	return s.ledger.Period() * time.Duration(min(1<<min(s.wire.Dialer.SlowHandshakes(), 16), maxPatienceFactor))
}

// IsSaving reports whether the session has a hold that would survive a reconnect before the end of trust.
func (o wireOwner) IsSaving() bool {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds.hasOneToSaveLocked()
}

// pauseToSave returns the pause between two rounds of attempts at all servers while a hold can be saved, if
// shorter than zk.Conn's own pause of one second; otherwise 0. In its own pause zk.Conn fails all unsent
// requests. Without zk.Conn's pause such requests stay queued, for T/2 at most: trust lasts no longer.
func (o wireOwner) pauseToSave() time.Duration {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := max(s.ledger.Period()/dial.HurryDivisor, shortestPause)
	if s.ledger.Timeout() == 0 || !s.holds.hasOneToSaveLocked() || pause >= time.Second {
		return 0
	}
	return pause
}

// defaultID returns the data that contenders without their own data write into their znodes. The id is never
// empty, because Curator's participants could not read empty data.
func defaultID() []byte {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return []byte(host + "/" + strconv.Itoa(os.Getpid()))
}

// ID returns the data that contenders without their own data write into their znodes.
func (s *Session) ID() []byte { return s.cfg.ID }

// sharedValues are the values shared by several recipes of a session, by key. Nothing is kept of a value after
// its last user, because a program may use any number of paths.
type sharedValues struct {
	mu     sync.Mutex  // protects values
	values map[any]any // weak pointers
}

// Share returns the session's value for key, and creates a value if none exists or nobody uses the old one any
// more. The type of a key implies the type of its values.
func Share[T any](s *Session, key any, create func() *T) *T {
	shared := &s.shared
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if pointer, ok := shared.values[key].(weak.Pointer[T]); ok {
		if value := pointer.Value(); value != nil {
			return value
		}
	}
	value := create()
	pointer := weak.Make(value)
	shared.values[key] = pointer
	runtime.AddCleanup(value, func(shared *sharedValues) { shared.forget(key, pointer) }, shared)
	return value
}

// forget removes a value that nobody uses any more, unless another value has taken its key.
func (v *sharedValues) forget(key, pointer any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.values[key] == pointer {
		delete(v.values, key)
	}
}

// Close is Shutdown with the default grace: an operation timeout for the functions of leaders, closeLimit for the session
// to end, a heartbeat period for the user's dialer and host provider and for lookups, and an operation timeout for other callbacks. Znodes left for the session's expiry are not an error of
// Close, only a log record.
func (s *Session) Close() error {
	if err := s.life.shutdown(grace{ctx: context.Background(), isDefault: true}); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// Shutdown ends every hold and wait with ErrClosed, waits for the functions of leaders, removes all leftovers
// in ZooKeeper, and joins every goroutine. On an own connection closing the session removes all znodes at once;
// on an adopted connection each znode is deleted, and the connection stays open. Shutdown is idempotent. Inside
// a function of the user run by this session, Shutdown only requests the end. At the end of ctx Shutdown
// returns; the error says what is still running and which znodes are left, and the rest continues in the
// background.
func (s *Session) Shutdown(ctx context.Context) error {
	if err := s.life.shutdown(grace{ctx: ctx}); err != nil {
		return fmt.Errorf("shutdown: %w", err)
	}
	return nil
}

// Retain marks the session as in use, until Release is called.
func (s *Session) Retain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeper.retainLocked()
}

// Release ends a Retain.
func (s *Session) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeper.releaseLocked()
}

// Log hands a record to the user's logger, in a callback: the handler is user code too, and must run neither
// under the session's locks nor in zk.Conn's goroutines. While a handler hangs, maxQueued records wait. Later
// records are dropped, and the next record passed to the handler reports their number.
func (s *Session) Log(level slog.Level, msg string, args ...any) { s.report.log(level, msg, args) }

// MayWarnOf reports whether a warning about a directory is due, and if so counts the warning as given.
func (s *Session) MayWarnOf(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report.mayWarnOfLocked(dir)
}

// NoteLeftOut is called for each call of a user's function skipped by TryPost.
func (s *Session) NoteLeftOut(function string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.noteLeftOutLocked(function)
}
