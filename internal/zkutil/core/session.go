package core

import (
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
)

// Session decides what a client may hold. It knows the connection, the evidence for the present session of the servers, and how many
// holds stand. When the servers expire that session, the Session continues as the next one.
//
// Methods named On… are events, and change the Session. The [Outcome] of an event says what the owner has to do at once, under the lock under
// which it calls every method.
type Session struct {
	Ledger

	// For the owner to read.
	Phase       Phase
	ID          int64           // of the present session; 0: it is over, and there is no other yet
	Epoch       uint64          // counts the connections
	IsConnected bool            // from the handshake to the disconnect
	ChangedAt   time.Time       // when IsConnected last changed
	State       connstate.State // as others see it
	Standing    int             // holds

	suspendEnds  bool   // holds end with the connection
	sessionsOver uint64 // how many sessions are over; unlike an id, it never returns
	users        int    // holds, waits and requests
	kept         int    // ended holds of the present session whose znodes stay for work that still runs
}

// NewSession returns a Session that never was connected. With suspendEnds, a hold ends with the connection.
func NewSession(ledger Ledger, suspendEnds bool) Session {
	return Session{Ledger: ledger, suspendEnds: suspendEnds}
}

// Phase is the progress of a client. A phase only grows.
//
//	Running    everything is allowed
//	   │ Close, Shutdown, or the user closes the zk.Conn itself: every hold and wait ends with ErrClosed
//	   ▼
//	Closing    no calls except clean-ups; campaigns step down, functions of Do return; deletions continue
//	   │ this work is done
//	   ▼
//	Sealed     no new tasks; the tasks are asked to end. Then zk.Conn is closed
type Phase int

// The phases.
const (
	Running Phase = iota
	Closing
	Sealed
)

// Outcome is what an event means for others. The owner ends the holds first, and then publishes the states.
type Outcome struct {
	End           End  // of all holds
	IsSessionOver bool // the session before is over; at the first handshake there was none
	Enter         []Change
}

// Change is a change of the state as others see it.
type Change struct {
	From, To    connstate.State
	Why         error     // of a Suspended or Lost
	ProofSentAt time.Time // when the latest write was sent that proved the session before the change; zero: none
}

// Reasons why a session is lost.
var (
	ErrExpired  = fmt.Errorf("%w: the servers ended it", zkutil.ErrSessionLost)
	ErrUnproven = fmt.Errorf("%w: no proof that it is still alive", zkutil.ErrSessionLost)
	ErrBound    = fmt.Errorf("%w: these servers resume no session after a disconnect", zkutil.ErrSessionLost)
)

// End is the end of holds. The zero End ends none.
type End struct {
	Cause       error
	Until       time.Time // when trust in them ended
	ProofSentAt time.Time // when the latest write was sent that proved their session; zero: none
}

// EndNow returns the end of a hold at a moment.
func (s *Session) EndNow(cause error, now time.Time) End {
	return End{Cause: cause, Until: zkutil.Earliest(s.Until(), now), ProofSentAt: s.ProofSentAt()}
}

// OnGranted is Ledger.OnGranted for the session with an id.
func (s *Session) OnGranted(id int64, granted time.Duration, beganAt time.Time) (isShortened bool) {
	return id == s.ID && s.Ledger.OnGranted(granted, beganAt)
}

// OnHandshake records a completed handshake. If it made a session, the previous session is over. isBound says that the servers resume no
// session.
func (s *Session) OnHandshake(id int64, granted time.Duration, isBound bool, now time.Time) (o Outcome) {
	isNew := id != s.ID
	s.Ledger.OnHandshake(granted, isNew)
	if isNew {
		s.endSession(&o, ErrExpired, now)
		s.ID = id
		s.OnNewSession(now)
	}
	s.SetBound(isBound)
	return o
}

// OnConnected records that requests can be sent, after OnHandshake.
func (s *Session) OnConnected(now time.Time) (o Outcome) {
	state := connstate.Reconnected
	if s.Epoch == 0 {
		state = connstate.Connected
	}
	s.Epoch++
	s.Ledger.OnConnected()
	s.IsConnected, s.ChangedAt = true, now
	s.enter(&o, state, nil)
	return o
}

// OnDisconnected records the end of the connection, if there is one, and why it ended.
func (s *Session) OnDisconnected(why error, now time.Time) (o Outcome) {
	if !s.IsConnected {
		return o
	}
	s.IsConnected, s.ChangedAt = false, now
	s.Ledger.OnDisconnected()
	if s.suspendEnds {
		o.End = s.EndNow(zkutil.ErrSuspended, now)
	}
	if s.State != connstate.Lost {
		s.enter(&o, connstate.Suspended, why)
	}
	if s.IsBound() {
		s.endSession(&o, ErrBound, now)
	}
	return o
}

// OnSessionOver records that the servers expired the session, or that the client gives it up.
func (s *Session) OnSessionOver(why error, now time.Time) (o Outcome) {
	s.endSession(&o, why, now)
	return o
}

func (s *Session) endSession(o *Outcome, why error, now time.Time) {
	s.ID, s.kept, o.IsSessionOver = 0, 0, true
	s.sessionsOver++
	if o.End.Cause == nil {
		o.End = s.EndNow(zkutil.ErrSessionLost, now)
	}
	if s.State != connstate.Lost && s.Epoch > 0 {
		s.enter(o, connstate.Lost, why)
	}
}

// OnClose is the end of everything that the client holds. Afterwards nothing is granted.
func (s *Session) OnClose(now time.Time) (o Outcome) {
	s.Phase = max(s.Phase, Closing)
	o.End = s.EndNow(zkutil.ErrClosed, now)
	s.enter(&o, connstate.Closed, nil)
	return o
}

// Seal ends the phase Closing.
func (s *Session) Seal() { s.Phase = Sealed }

// enter changes the state. Closed is final.
func (s *Session) enter(o *Outcome, state connstate.State, why error) {
	if s.State == connstate.Closed {
		return
	}
	o.Enter = append(o.Enter, Change{s.State, state, why, s.ProofSentAt()})
	if s.State = state; state == connstate.Reconnected {
		s.State = connstate.Connected
	}
}

// OnWriteAnswered is Ledger.OnWriteAnswered for a write of the session with an id.
func (s *Session) OnWriteAnswered(id int64, w Write) (o Outcome, isProof bool) {
	if id != s.ID || !s.Ledger.OnWriteAnswered(w) {
		return o, false
	}
	if s.State == connstate.Lost && s.IsConnected {
		s.enter(&o, connstate.Reconnected, nil)
	}
	return o, true
}

// OnTick returns what is due at a moment. line has the facts about the connection, which are needed only if HasLineFacts is true.
func (s *Session) OnTick(line Facts) (o Outcome, p Plan) {
	standing := s.Standing
	p = s.Decide(s.facts(line, standing))
	if p.EndHolds {
		o.End = s.EndNow(zkutil.ErrSessionLost, line.Now)
		if p.EnterLost {
			s.enter(&o, connstate.Lost, ErrUnproven)
		}
		standing = 0
		p = s.Decide(s.facts(line, standing))
	}
	if p.EnterLost {
		s.enter(&o, connstate.Lost, ErrUnproven)
	}
	if p.LeaveServer {
		s.OnServerLeft(line.Now, standing+s.kept > 0)
	}
	return o, p
}

// HasLineFacts reports whether the connection has facts for OnTick. Otherwise nothing could be sent.
func (s *Session) HasLineFacts() bool { return s.IsConnected && s.users > 0 }

// facts adds what the Session knows to the facts about the connection.
func (s *Session) facts(f Facts, standing int) Facts {
	f.IsLost, f.IsSuspended = s.State == connstate.Lost, s.State == connstate.Suspended
	f.IsConnected, f.ChangedAt, f.IsInUse, f.Holds = s.IsConnected, s.ChangedAt, s.users > 0, standing
	switch {
	case s.kept == 0:
	case s.Stands(f.Now):
		f.Holds += s.kept
	default: // there is no hold to end, and a heartbeat may prove the session again
		f.IsLost = true
	}
	return f
}

// BeginUse counts a hold, a wait or a request, until EndUse. It reports whether it is the only one. OnUse then has to follow.
func (s *Session) BeginUse() (isFirst bool) {
	s.users++
	return s.users == 1
}

// EndUse ends a BeginUse.
func (s *Session) EndUse() { s.users-- }

// IsInUse reports whether anything is held, awaited or asked for.
func (s *Session) IsInUse() bool { return s.users > 0 }

// Saved returns for how many holds the session is to be saved, with the ended ones whose work still runs.
func (s *Session) Saved() int { return s.Standing + s.kept }

// HasHoldToSave reports whether a hold would survive a reconnect before the end of trust.
func (s *Session) HasHoldToSave(now time.Time) bool { return s.Saved() > 0 && s.Stands(now) }

// NeedsProof reports whether the session has to be proven before a grant.
func (s *Session) NeedsProof(now time.Time) bool { return s.IsThin(now) || !s.Stands(now) }

// MayOldSessionLive reports whether the session before may still have its znodes, because it ended for this client alone.
func (s *Session) MayOldSessionLive(now time.Time) bool {
	return s.IsBound() && now.Sub(s.ChangedAt) < 2*s.Timeout()
}
