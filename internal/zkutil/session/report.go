package session

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
)

// report is the session's output, in the log, to traces and in Health, and does not influence any decision.
type report struct {
	s          *Session
	traceCalls *callbacks.Order // of cfg.Traces: losses and changes of the state

	// Guarded by Session.mu.
	since       time.Time // of the state
	suspendedAt time.Time // when the connection was lost last
	server      string    // the address of the latest server that accepted the session; "": none yet
	lostServer  string    // the server when the connection was lost last
	failure     error     // the latest one of a dial, a handshake or the connection; nil: there was none
	id          int64     // of the session with the latest Connected or Reconnected
	leasesLost  int       // with the session or the connection, since the latest Connected or Reconnected
	uncommitted string    // the server that was last warned of because it commits nothing
	shortGrants []func()  // write what the latest handshakes granted, once the connection was logged
}

var errDisconnected = errors.New("connection lost")

// showStateLocked writes a state just entered to the log, and to the traces.
func (r *report) showStateLocked(c core.Change) {
	s, before, state, why := r.s, c.From, c.To, c.Why
	now := time.Now()
	e := trace.StateChange{From: before, To: state, Server: r.server, Err: why}
	r.since = now
	switch state {
	case connstate.Connected:
		e.NewSession, r.id = true, s.core.ID
		s.log.Log(slog.LevelInfo, "connected", "server", e.Server, "session_timeout", s.core.Timeout(), "asked", s.cfg.SessionTimeout)
		r.showShortGrantsLocked()
	case connstate.Suspended:
		r.suspendedAt, r.lostServer = now, e.Server
		s.log.Log(slog.LevelInfo, "suspended", "server", e.Server, "err", why)
	case connstate.Reconnected:
		e.LostServer = r.lostServer
		e.NewSession, r.id = s.core.ID != r.id, s.core.ID
		s.log.Log(slog.LevelInfo, "reconnected", "server", e.Server, "after", now.Sub(r.suspendedAt).Round(time.Millisecond),
			"new_session", e.NewSession, "leases_lost", r.leasesLost)
		r.leasesLost = 0
		r.showShortGrantsLocked()
	case connstate.Lost:
		if before == connstate.Connected { // the session alone was lost, or both in one
			r.suspendedAt, r.lostServer = now, e.Server
		}
		r.failure = why
		s.log.Log(slog.LevelWarn, "session lost", "server", e.Server, r.lastProofAttr(c.ProofSentAt), "err", why)
	case connstate.Closed:
		e.Server = ""
		s.log.Log(slog.LevelDebug, "closed")
	}
	for _, t := range s.cfg.Traces {
		if t.StateChange != nil {
			r.postTrace(func() { t.StateChange(e) })
		}
	}
}

// noteGrantLocked notes a session timeout that a handshake granted, if it is short. The warning follows the record of
// the connection. before is the timeout of the handshake before, 0 if this is the first.
func (r *report) noteGrantLocked(timeout, before time.Duration) {
	asked := r.s.cfg.SessionTimeout
	if timeout < before {
		r.warnOnceConnectedLocked(func() {
			r.s.log.Log(slog.LevelWarn, "server grants a shorter session timeout than before; the servers' limits differ or were lowered", "session_timeout", timeout, "before", before)
		})
	}
	if timeout != before && timeout <= asked/2 {
		r.warnOnceConnectedLocked(func() {
			r.s.log.Log(slog.LevelWarn, "server grants a session timeout far below the requested one", "session_timeout", timeout, "asked", asked)
		})
	}
}

// warnUncommittedLocked warns of a server that answers writes and commits nothing, once until another server does so.
func (r *report) warnUncommittedLocked(server string) {
	if r.uncommitted == server {
		return
	}
	r.uncommitted = server
	r.s.log.Log(slog.LevelWarn, "server answers pings but commits nothing; no lease can be kept on it", "server", server)
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
func (r *report) lastProofLocked() time.Time { return r.s.clock.Local(r.s.core.ProofSentAt()) }

// lastProofAttr is the time of a proof for the log.
func (r *report) lastProofAttr(at time.Time) slog.Attr {
	if last := r.s.clock.Local(at); !last.IsZero() {
		return slog.Time("last_proof", last)
	}
	return slog.String("last_proof", "none")
}

// Health is the condition of a session.
type Health struct {
	State          connstate.State
	Since          time.Time // of the state
	Server         string    // to which the session is connected; "": none
	LastProof      time.Time // when the latest proof of the session was sent; zero: none yet
	SessionTimeout time.Duration
	Err            error // the latest failure of the connection, also after a reconnect; nil: none
}

// showGrantLocked logs the start of a term of leadership.
func (h *Hold) showGrantLocked() {
	if h.core.KeepsNode {
		h.s.log.Log(slog.LevelInfo, "leading", "path", h.userPath, "token", h.token, "id", h.id())
	}
}

// showRevocationLocked logs a peer's request for the lease.
func (h *Hold) showRevocationLocked() {
	h.s.log.Log(slog.LevelInfo, "asked to release",
		"path", h.userPath, "token", h.token, "id", h.id(), "held", time.Since(h.grantedAt).Round(time.Millisecond))
}

// showEndLocked logs the end of a hold, unless the owner released the hold.
func (h *Hold) showEndLocked(lastProof time.Time) {
	switch {
	case h.core.IsLost():
		if zkutil.IsAny(h.core.Cause, zkutil.ErrSessionLost, zkutil.ErrSuspended) {
			h.s.report.leasesLost++
		}
		h.s.log.Log(slog.LevelWarn, "lease lost",
			"path", h.userPath, "token", h.token, "id", h.id(), "held", h.heldLocked(), h.s.report.lastProofAttr(lastProof), "cause", h.core.Cause)
	case h.core.KeepsNode: // see showVacatedLocked
	case errors.Is(h.core.Cause, zkutil.ErrClosed): // the user requested the end
		h.s.log.Log(slog.LevelDebug, "lease ended", "path", h.userPath, "token", h.token, "id", h.id(), "held", h.heldLocked(), "cause", h.core.Cause)
	}
}

// expectSlowLocked begins the time after which a hold counts as slow, ownLimit unless the client has its own time. A
// term of leadership may last for ever.
func (h *Hold) expectSlowLocked(ownLimit time.Duration) {
	if limit := cmp.Or(h.s.cfg.SlowHold, ownLimit); limit > 0 && !h.core.KeepsNode {
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
	if h.core.Cause == nil {
		h.s.log.Log(slog.LevelWarn, "slow hold",
			"path", h.userPath, "token", h.token, "id", h.id(), "held", time.Since(h.grantedAt).Round(time.Millisecond))
	}
}

// showVacatedLocked writes to the log that a leader gives up its znode, unless its term was lost, which was logged
// before. Until then no other candidate can lead, because the leader's work may continue. See WatchWork.
func (h *Hold) showVacatedLocked() {
	if !h.core.IsLost() {
		h.s.log.Log(slog.LevelInfo, "stepped down", "path", h.userPath, "token", h.token, "id", h.id(), "led", h.heldLocked(), "cause", h.why)
	}
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

// postTrace calls a function of the traces in the background. The calls keep their order.
func (r *report) postTrace(fn func()) {
	if r.traceCalls.TryPost(fn) {
		r.s.log.NoteLeftOut("trace")
	}
}
