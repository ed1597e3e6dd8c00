package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// report is the session's output, in the log, to traces and in Health, and does not influence any decision.
type report struct {
	s          *Session
	logs       *Callbacks // of the handler behind cfg.Logger
	traceCalls *Callbacks // of cfg.Traces: losses and changes of the state
	records    records

	// Guarded by Session.mu.
	since       time.Time            // of the state
	suspendedAt time.Time            // when the connection was lost last
	server      string               // the address of the latest server that has accepted the session; "": none yet
	lostServer  string               // the server when the connection was lost last
	failure     error                // the latest one of a dial, a handshake or the connection; nil: there was none
	id          int64                // of the session with the latest Connected or Reconnected
	warnedAt    map[string]time.Time // see MayWarnOf
	leftOut     map[string]int       // calls of functions of the user, see noteLeftOutLocked
	leasesLost  int                  // with the session or the connection, since the latest Connected or Reconnected
	shortGrants []func()             // write what the latest handshakes have granted, once the connection was logged
}

var (
	errExpired      = fmt.Errorf("%w: the servers have ended it", zkutil.ErrSessionLost)
	errUnproven     = fmt.Errorf("%w: nothing proves that it is alive", zkutil.ErrSessionLost)
	errDisconnected = errors.New("connection lost")
)

// showStateLocked writes a state just entered to the log, and to the traces.
func (r *report) showStateLocked(before, state State, why error) {
	s := r.s
	now := time.Now()
	e := StateChange{From: before, To: state, Server: r.server, Err: why}
	r.since = now
	switch state {
	case Connected:
		e.NewSession, r.id = true, s.link.id
		s.Log(slog.LevelInfo, "connected", "server", e.Server, "session_timeout", s.ledger.Timeout(), "asked", s.cfg.SessionTimeout)
		r.showShortGrantsLocked()
	case Suspended:
		r.suspendedAt, r.lostServer = now, e.Server
		s.Log(slog.LevelInfo, "suspended", "server", e.Server, "err", why)
	case Reconnected:
		e.LostServer = r.lostServer
		e.NewSession, r.id = s.link.id != r.id, s.link.id
		s.Log(slog.LevelInfo, "reconnected", "server", e.Server, "after", now.Sub(r.suspendedAt).Round(time.Millisecond),
			"new_session", e.NewSession, "leases_lost", r.leasesLost)
		r.leasesLost = 0
		r.showShortGrantsLocked()
	case Lost:
		if before == Connected { // the session alone was lost, or both in one
			r.suspendedAt, r.lostServer = now, e.Server
		}
		r.failure = why
		s.Log(slog.LevelWarn, "session lost", "server", e.Server, r.lastProofAttrLocked(), "err", why)
	case Closed:
		e.Server = ""
		s.Log(slog.LevelDebug, "closed")
	}
	r.postStateChangeLocked(e)
}

// noteGrantLocked notes a session timeout that a handshake has granted, if it is short. The warning follows the record of
// the connection. before is the timeout of the handshake before, 0 if this is the first.
func (r *report) noteGrantLocked(timeout, before time.Duration) {
	asked := r.s.cfg.SessionTimeout
	if timeout < before {
		r.warnOnceConnectedLocked(func() {
			r.s.Log(slog.LevelWarn, "the server grants a shorter session timeout than the one before: the servers' bounds differ, or were lowered", "session_timeout", timeout, "before", before)
		})
	}
	if timeout != before && timeout <= asked/2 {
		r.warnOnceConnectedLocked(func() {
			r.s.Log(slog.LevelWarn, "the server grants a session timeout far below the one asked for", "session_timeout", timeout, "asked", asked)
		})
	}
}

// maxShortGrants bounds the warnings of handshakes whose connections end before they were logged.
const maxShortGrants = 16

func (r *report) warnOnceConnectedLocked(warn func()) {
	if len(r.shortGrants) < maxShortGrants {
		r.shortGrants = append(r.shortGrants, warn)
	}
}

// showShortGrantsLocked writes the warnings of the handshakes until now.
func (r *report) showShortGrantsLocked() {
	for _, warn := range r.shortGrants {
		warn()
	}
	r.shortGrants = nil
}

// lastProofLocked is when the latest write was sent that has proven the present session, zero if there was none.
func (r *report) lastProofLocked() time.Time { return r.s.clock.Local(r.s.ledger.ProofSentAt()) }

// lastProofAttrLocked is lastProofLocked for the log.
func (r *report) lastProofAttrLocked() slog.Attr {
	if last := r.lastProofLocked(); !last.IsZero() {
		return slog.Time("last_proof", last)
	}
	return slog.String("last_proof", "none")
}

// Health is the condition of a session.
type Health struct {
	State          State
	Since          time.Time // of the state
	Server         string    // to which the session is connected; "": none
	LastProof      time.Time // when the latest proof of the session was sent; zero: none yet
	SessionTimeout time.Duration
	Err            error // the latest failure of the connection, also after a reconnect; nil: none
}

// showGrantLocked logs the start of a term of leadership.
func (h *Hold) showGrantLocked() {
	if h.keepsNode {
		h.s.Log(slog.LevelInfo, "leading", "path", h.userPath, "token", h.token, "id", h.id())
	}
}

// showRevocationLocked logs a peer's request for the lease.
func (h *Hold) showRevocationLocked() {
	h.s.Log(slog.LevelInfo, "asked to release",
		"path", h.userPath, "token", h.token, "id", h.id(), "held", time.Since(h.grantedAt).Round(time.Millisecond))
}

// showEndLocked logs the end of a hold, unless the owner has released the hold.
func (h *Hold) showEndLocked() {
	switch {
	case h.isLostLocked():
		if zkutil.IsAny(h.cause, zkutil.ErrSessionLost, zkutil.ErrSuspended) {
			h.s.report.leasesLost++
		}
		h.s.Log(slog.LevelWarn, "lease lost",
			"path", h.userPath, "token", h.token, "id", h.id(), "held", h.heldLocked(), h.s.report.lastProofAttrLocked(), "cause", h.cause)
	case h.keepsNode: // see showVacatedLocked
	case errors.Is(h.cause, zkutil.ErrClosed): // the user has requested the end
		h.s.Log(slog.LevelDebug, "lease ended", "path", h.userPath, "token", h.token, "id", h.id(), "held", h.heldLocked(), "cause", h.cause)
	}
}

// expectSlowLocked begins the time after which a hold counts as slow. A term of leadership may last for ever.
func (h *Hold) expectSlowLocked() {
	if limit := h.s.cfg.SlowHold; limit > 0 && !h.keepsNode {
		h.slowTimer = time.AfterFunc(limit, h.warnIfSlow) // which blocks nowhere, and does nothing after the end of the hold
	}
}

func (h *Hold) stopSlowLocked() {
	if h.slowTimer != nil {
		h.slowTimer.Stop()
	}
}

// warnIfSlow writes to the log that a hold still stands.
func (h *Hold) warnIfSlow() {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.cause == nil {
		h.s.Log(slog.LevelWarn, "slow hold",
			"path", h.userPath, "token", h.token, "id", h.id(), "held", time.Since(h.grantedAt).Round(time.Millisecond))
	}
}

// showVacatedLocked writes to the log that a leader gives up its znode, unless its term was lost, which was logged
// before. Until then nobody else can lead, because the leader's work may go on: see WatchWork.
func (h *Hold) showVacatedLocked() {
	if !h.isLostLocked() {
		h.s.Log(slog.LevelInfo, "stepped down", "path", h.userPath, "token", h.token, "id", h.id(), "led", h.heldLocked(), "cause", h.why)
	}
}

func (h *Hold) isLostLocked() bool {
	return !zkutil.IsAny(h.cause, zkutil.ErrReleased, zkutil.ErrClosed, zkutil.ErrMaxHold)
}

// heldLocked returns how long an ended hold stood.
func (h *Hold) heldLocked() time.Duration { return h.endedAt.Sub(h.grantedAt).Round(time.Millisecond) }

// id returns the data that identifies the holder to others.
func (h *Hold) id() string {
	if h.data == nil {
		return string(h.s.cfg.ID)
	}
	return string(h.data)
}

// The warnings of one kind about one directory come at most once in warnPause, because goroutines sharing a
// client may well wait for each other all the time. maxWarned bounds the memory.
const (
	warnPause = time.Minute
	maxWarned = 1024
)

func (r *report) mayWarnOfLocked(dir string) bool {
	now := time.Now()
	if last, wasWarned := r.warnedAt[dir]; wasWarned && now.Sub(last) < warnPause {
		return false
	}
	if r.warnedAt == nil || len(r.warnedAt) >= maxWarned {
		r.warnedAt = map[string]time.Time{}
	}
	r.warnedAt[dir] = now
	return true
}

// records is the session's knowledge of the handler behind cfg.Logger.
type records struct {
	dropped atomic.Int64 // records since the latest passed to the handler

	mu         sync.Mutex // protects the fields below; taken last
	logger     *slog.Logger
	disabledAt map[slog.Level]time.Time // when this logger last reported a level as disabled
}

// askAgainAfter is how long a logger's answer that a level is disabled is used. Meanwhile a program may have
// changed the level.
const askAgainAfter = time.Second

// mayWant reports whether a logger may want records of a level, as far as known.
func (r *records) mayWant(logger *slog.Logger, level slog.Level) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logger != logger {
		r.logger, r.disabledAt = logger, map[slog.Level]time.Time{}
	}
	at, isDisabled := r.disabledAt[level]
	return !isDisabled || time.Since(at) >= askAgainAfter
}

// noteDisabled records that a logger does not want records of a level.
func (r *records) noteDisabled(logger *slog.Logger, level slog.Level) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logger == logger {
		r.disabledAt[level] = time.Now()
	}
}

// logger returns the user's logger, or the program's present default.
func (r *report) logger() *slog.Logger {
	s := r.s
	if s.cfg.Logger != nil {
		return s.cfg.Logger
	}
	return slog.Default()
}

// log is Log. A closed session accepts no more callbacks: then the caller may call write itself.
func (r *report) log(level slog.Level, msg string, args []any) (write func(), isClosed bool) {
	logger := r.logger()
	if logger.Handler() == slog.DiscardHandler || !r.records.mayWant(logger, level) {
		return nil, false
	}
	var callers [1]uintptr
	runtime.Callers(3, callers[:]) // without Callers, log and Log
	at := time.Now()
	args = withReadableDurations(args)
	write = func() {
		ctx := r.s.life.tasksCtx
		if !logger.Enabled(ctx, level) {
			r.records.noteDisabled(logger, level)
			return
		}
		record := slog.NewRecord(at, level, msg, callers[0])
		record.Add(args...)
		if dropped := r.records.dropped.Swap(0); dropped > 0 {
			record.AddAttrs(slog.Int64("records_dropped", dropped))
		}
		_ = logger.Handler().Handle(ctx, record) // as slog.Logger does
	}
	isQueued, isClosed := r.logs.post(write, maxQueued)
	if !isQueued && !isClosed {
		r.records.dropped.Add(1)
	}
	return write, isClosed
}

// withReadableDurations replaces durations by their texts, because slog.JSONHandler writes them as numbers without a unit.
func withReadableDurations(args []any) []any {
	readable := slices.Clone(args)
	for i, arg := range readable {
		if d, ok := arg.(time.Duration); ok {
			readable[i] = d.String()
		}
	}
	return readable
}

// noteLeftOutLocked warns of calls of a function of the user that are left out, because it does not return.
func (r *report) noteLeftOutLocked(function string) {
	if r.leftOut == nil {
		r.leftOut = map[string]int{}
	}
	r.leftOut[function]++
	if r.mayWarnOfLocked(function) {
		r.s.Log(slog.LevelWarn, "a function does not return: calls are left out", "function", function, "waiting", maxQueued, "left_out", r.leftOut[function])
	}
}

// logAdapter logs the lines of zk.Conn at debug level. Use with zk.WithLogInfo(false), because the other lines
// print session ids.
type logAdapter struct{ s *Session }

var _ zk.Logger = logAdapter{}

// echoes are the prefixes of zk.Conn's lines about events that the session itself logs.
var echoes = []string{ //nolint:gochecknoglobals // a constant list
	"connected to", "failed to connect", "authentication failed", "send loop terminated", "recv loop terminated", "Failed to set previous watches",
}

func (a logAdapter) Printf(format string, args ...any) {
	if !a.s.report.records.mayWant(a.s.report.logger(), slog.LevelDebug) ||
		slices.ContainsFunc(echoes, func(begin string) bool { return strings.HasPrefix(format, begin) }) {
		return
	}
	a.s.Log(slog.LevelDebug, "zk.Conn: "+fmt.Sprintf(format, args...))
}

// Trace has functions of the user that follow acquisitions, leases and the connection. Each may be nil. They
// run under no lock, each in its own goroutine, so that neither a panic nor runtime.Goexit in one has an
// effect.
type Trace struct {
	AcquireStart func(ctx context.Context, e AcquireStart) context.Context
	AcquireEnd   func(ctx context.Context, e AcquireEnd)
	LeaseEnd     func(ctx context.Context, e LeaseEnd)
	StateChange  func(e StateChange)
}

// AcquireStart is the start of an acquisition. Package recipes has the public form of this type and the types
// below, with the same fields.
type AcquireStart struct {
	Recipe, Name, Path string
	Try                bool
}

// AcquireEnd is the end of an acquisition.
type AcquireEnd struct {
	Recipe, Name, Path string
	Try, Reentrant     bool
	Ahead              int
	Waited             time.Duration
	Token              int64
	Permits            int
	Err                error
}

// LeaseEnd is the end of an acquired lease.
type LeaseEnd struct {
	Recipe, Name, Path string
	Held               time.Duration
	Token              int64
	Permits            int
	Cause              error
}

// StateChange is a change of the connection's state.
type StateChange struct {
	From, To   State
	Server     string
	LostServer string
	NewSession bool
	Err        error
}

// Acquisition is one acquisition as seen by the traces, from AcquireStart to LeaseEnd. Every method may be
// called on nil, an acquisition without traces, and then does nothing.
type Acquisition struct {
	s       *Session
	scope   zkutil.Scope      // of the candidate that acquires a term; 0: none
	ctxs    []context.Context // for each trace, the context returned by AcquireStart
	start   AcquireStart
	beganAt time.Time
	ahead   int

	// Set before AcquireEnd is called, and not changed afterwards.
	token     int64
	permits   int // 0: one lease
	grantedAt time.Time

	// Guarded by Session.mu.
	open int   // leases not yet ended
	loss error // why the first of the lost leases has ended
}

// BeginAcquisition calls AcquireStart of all traces. Without traces, BeginAcquisition returns nil.
func BeginAcquisition(ctx context.Context, s *Session, start AcquireStart, scope zkutil.Scope) *Acquisition {
	if len(s.cfg.Traces) == 0 {
		return nil
	}
	a := &Acquisition{s: s, scope: scope, start: start, beganAt: time.Now(), ctxs: make([]context.Context, len(s.cfg.Traces))}
	for i, t := range s.cfg.Traces {
		a.ctxs[i] = ctx //nolint:fatcontext // each trace has its own
		if t.AcquireStart == nil {
			continue
		}
		a.run(func() {
			if own := t.AcquireStart(ctx, start); own != nil {
				a.ctxs[i] = own //nolint:fatcontext // as above
			}
		})
	}
	return a
}

// SetAhead records how many contenders were ahead at the first listing of the queue.
func (a *Acquisition) SetAhead(n int) {
	if a != nil {
		a.ahead = n
	}
}

// Fail ends an acquisition that has failed.
func (a *Acquisition) Fail(err error) {
	if a != nil {
		a.callAcquireEnd(AcquireEnd{Err: err})
	}
}

// Succeed ends an acquisition with entries. LeaseEnd follows when the last entry has ended, and can't come
// before AcquireEnd, because the entries are bound only afterwards.
func (a *Acquisition) Succeed(isReentry bool, entries ...*Entry) {
	if a == nil {
		return
	}
	a.token, a.grantedAt = entries[0].Token(), time.Now()
	if len(entries) > 1 {
		a.permits = len(entries)
	}
	a.callAcquireEnd(AcquireEnd{Reentrant: isReentry, Token: a.token, Permits: a.permits})
	a.s.mu.Lock()
	for _, e := range entries {
		switch cause := e.hold.endedLocked(); {
		case e.hasLeft:
		case cause != nil:
			a.noteLossLocked(cause)
		default:
			e.acquisition = a
			a.open++
		}
	}
	isOver := a.open == 0
	a.s.mu.Unlock()
	if isOver {
		a.callLeaseEnd()
	}
}

func (a *Acquisition) noteLossLocked(cause error) {
	if a.loss == nil {
		a.loss = cause
	}
}

// endTracedLocked records that an entry has ended, by a loss if cause is not nil. If the acquisition has no
// other entry left, endTracedLocked returns the acquisition: then the caller has to run callLeaseEnd, not under
// the lock.
func (e *Entry) endTracedLocked(cause error) *Acquisition {
	a := e.acquisition
	if a == nil {
		return nil
	}
	e.acquisition = nil
	if cause != nil && !errors.Is(cause, zkutil.ErrReleased) {
		a.noteLossLocked(cause)
	}
	a.open--
	if a.open > 0 {
		return nil
	}
	return a
}

// callAcquireEnd calls AcquireEnd of all traces.
//
//nolint:contextcheck,nolintlint // seen at the callers: the hooks get the contexts of their own AcquireStart
func (a *Acquisition) callAcquireEnd(e AcquireEnd) {
	e.Recipe, e.Name, e.Path, e.Try = a.start.Recipe, a.start.Name, a.start.Path, a.start.Try
	e.Ahead, e.Waited = a.ahead, time.Since(a.beganAt)
	for i, t := range a.s.cfg.Traces {
		if t.AcquireEnd != nil {
			a.run(func() { t.AcquireEnd(a.ctxs[i], e) })
		}
	}
}

// callLeaseEnd calls LeaseEnd of all traces.
//
//nolint:contextcheck,nolintlint // as above
func (a *Acquisition) callLeaseEnd() {
	e := LeaseEnd{
		Recipe: a.start.Recipe, Name: a.start.Name, Path: a.start.Path,
		Held: time.Since(a.grantedAt), Token: a.token, Permits: a.permits, Cause: a.loss, // nothing writes loss any more
	}
	for i, t := range a.s.cfg.Traces {
		if t.LeaseEnd != nil {
			a.run(func() { t.LeaseEnd(a.ctxs[i], e) })
		}
	}
}

// run runs a function of a trace in a separate goroutine, and waits for the end.
func (a *Acquisition) run(fn func()) {
	order := Callbacks{s: a.s, scope: a.scope} // for its handling of panics
	done := make(chan struct{})
	go func() { // ends with the user's function; joined below
		defer close(done)
		order.runContained(fn)
	}()
	<-done
}

// postStateChangeLocked has StateChange of all traces called, in the order of the changes.
func (r *report) postStateChangeLocked(e StateChange) {
	for _, t := range r.s.cfg.Traces {
		if t.StateChange != nil {
			r.postTraceLocked(func() { t.StateChange(e) })
		}
	}
}

// postTraceLocked has a function of a trace called in the background.
func (r *report) postTraceLocked(fn func()) {
	if r.traceCalls.TryPost(fn) {
		r.noteLeftOutLocked("trace")
	}
}

// Work that continues after the end of its context is reported after firstOverrun, and again every
// overrunPause.
const (
	firstOverrun = time.Second
	overrunPause = time.Minute
)

// WatchWork reports work that continues although its context has ended, until stop is called. Each time,
// WatchWork calls entry for the ended acquisition, and logs a warning about the acquisition. Then WatchWork
// calls report, unless nil, with an ErrWorkGoesOn. report must not block. If entry returns nil, the reports
// end.
//
// The goroutine starts only at the end of ctx. stop waits for the goroutine.
func WatchWork(ctx context.Context, entry func() *Entry, report func(error)) (stop func()) {
	stopped, ended := make(chan struct{}), make(chan struct{})
	unbind := context.AfterFunc(ctx, func() {
		defer close(ended)
		began, due := time.Now(), firstOverrun
		timer := time.NewTimer(due)
		defer timer.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-timer.C:
			}
			e := entry()
			if e == nil {
				return
			}
			err := e.warnOfOverrun(time.Since(began))
			if report != nil {
				report(err)
			}
			due += overrunPause
			timer.Reset(time.Until(began.Add(due)))
		}
	})
	return func() {
		close(stopped)
		if !unbind() {
			<-ended
		}
	}
}

// warnOfOverrun logs that the work of an entry has continued for some time after the end of the entry, and
// returns the warning as an error.
func (e *Entry) warnOfOverrun(overrun time.Duration) error {
	h, overrun := e.hold, overrun.Round(time.Millisecond)
	h.s.Log(slog.LevelWarn, zkutil.ErrWorkGoesOn.Error(),
		"path", h.userPath, "token", h.token, "id", h.id(), "for", overrun, "cause", context.Cause(e.ctx))
	return fmt.Errorf("%w, for %v", zkutil.ErrWorkGoesOn, overrun)
}
