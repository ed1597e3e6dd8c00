package session

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// shown is what the session shows of its connection, in the log, to traces and in Health. Nothing is decided
// by it. Guarded by Session.mu.
type shown struct {
	since       time.Time            // of the state
	suspendedAt time.Time            // when the connection was lost last
	server      string               // the address of the latest server that has accepted the session; "": none yet
	failure     error                // the latest one of a dial, a handshake or the connection; nil: there was none
	id          int64                // of the session with the latest Connected or Reconnected
	warnedAt    map[string]time.Time // see MayWarnOf
}

var (
	errExpired      = fmt.Errorf("%w: the servers have ended it", zkutil.ErrSessionLost)
	errUnproven     = fmt.Errorf("%w: nothing proves that it is alive", zkutil.ErrSessionLost)
	errDisconnected = errors.New("connection lost")
)

// whyDisconnectedLocked is why the connection was lost just now.
func (s *Session) whyDisconnectedLocked() error {
	if s.wire != nil {
		if err := s.wire.Line().Failure(); err != nil {
			return connectionError{err}
		}
	}
	return errDisconnected
}

// showStateLocked writes a state that has just been entered to the log, and tells the traces.
func (s *Session) showStateLocked(before, state State, why error) {
	now := time.Now()
	e := StateChange{From: before, To: state, Server: s.shown.server, Err: why}
	s.shown.since = now
	switch state {
	case Connected:
		e.NewSession, s.shown.id = true, s.link.id
		s.Log(slog.LevelInfo, "connected", "server", e.Server, "session_timeout", s.live.timeout, "asked", s.cfg.SessionTimeout)
	case Suspended:
		s.shown.suspendedAt = now
		s.Log(slog.LevelInfo, "suspended", "server", e.Server, "err", why)
	case Reconnected:
		e.NewSession, s.shown.id = s.link.id != s.shown.id, s.link.id
		s.Log(slog.LevelInfo, "reconnected", "server", e.Server, "after", now.Sub(s.shown.suspendedAt).Round(time.Millisecond), "new_session", e.NewSession)
	case Lost:
		if before == Connected { // the session alone was lost, or both in one
			s.shown.suspendedAt = now
		}
		s.shown.failure = why
		s.Log(slog.LevelWarn, "session lost", "server", e.Server, s.lastProofAttrLocked(), "err", why)
	case Closed:
		e.Server = ""
		s.Log(slog.LevelDebug, "closed")
	}
	s.postStateChangeLocked(e)
}

// lastProofLocked is when the latest write was sent that has proven the present session, zero if there was none.
func (s *Session) lastProofLocked() time.Time { return s.clock.local(s.live.trust.proofSentAt) }

// lastProofAttrLocked is lastProofLocked for the log.
func (s *Session) lastProofAttrLocked() slog.Attr {
	if last := s.lastProofLocked(); !last.IsZero() {
		return slog.Time("last_proof", last)
	}
	return slog.String("last_proof", "none")
}

// Health is how a session is.
type Health struct {
	State          State
	Since          time.Time // of the state
	Server         string    // to which the session is connected; "": to none
	LastProof      time.Time // when the latest write was sent that has proven the session; zero: none yet
	SessionTimeout time.Duration
	Err            error // the latest failure of the connection, also after a reconnect; nil: there was none
}

// Health returns how the session is now.
func (s *Session) Health() Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Health{
		State: s.state, Since: s.shown.since, LastProof: s.lastProofLocked(), SessionTimeout: s.live.timeout, Err: s.shown.failure,
	}
	if s.link.isConnected && s.state != Closed {
		h.Server = s.shown.server
	}
	return h
}

// showGrantLocked writes the begin of a term of leadership to the log.
func (h *Hold) showGrantLocked() {
	if h.keepsNode {
		h.s.Log(slog.LevelInfo, "leading", "path", h.userPath, "token", h.token, "id", h.id())
	}
}

// showEndLocked writes the end of a hold to the log: a loss, and the end of a term of leadership.
func (h *Hold) showEndLocked(why error) {
	held := time.Since(h.grantedAt).Round(time.Millisecond)
	isLost := !zkutil.IsAny(h.cause, zkutil.ErrReleased, zkutil.ErrClosed)
	switch {
	case isLost:
		h.s.Log(slog.LevelWarn, "lease lost",
			"path", h.userPath, "token", h.token, "id", h.id(), "held", held, h.s.lastProofAttrLocked(), "cause", h.cause)
	case h.keepsNode:
		h.s.Log(slog.LevelInfo, "stepped down", "path", h.userPath, "token", h.token, "id", h.id(), "led", held, "cause", why)
	case errors.Is(h.cause, zkutil.ErrClosed): // the user has asked for it
		h.s.Log(slog.LevelDebug, "lease ended", "path", h.userPath, "token", h.token, "id", h.id(), "held", held, "cause", h.cause)
	}
}

// id is what others see of the holder.
func (h *Hold) id() string {
	if h.data == nil {
		return string(h.s.cfg.ID)
	}
	return string(h.data)
}

// HeldFor returns for how long the znode at path has been a hold of this session, 0 if it is none.
func (s *Session) HeldFor(path string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holds[path]; h != nil {
		return time.Since(h.grantedAt)
	}
	return 0
}

// The warnings of one kind about one directory come at most once in warnPause, because goroutines that share a
// client may well wait for each other all the time. maxWarned bounds the memory for that.
const (
	warnPause = time.Minute
	maxWarned = 1024
)

// MayWarnOf reports whether a warning about a directory is due, and takes it as given then.
func (s *Session) MayWarnOf(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if last, wasWarned := s.shown.warnedAt[dir]; wasWarned && now.Sub(last) < warnPause {
		return false
	}
	if s.shown.warnedAt == nil || len(s.shown.warnedAt) >= maxWarned {
		s.shown.warnedAt = map[string]time.Time{}
	}
	s.shown.warnedAt[dir] = now
	return true
}
