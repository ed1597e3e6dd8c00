package core

import (
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Claim is a contender's znode that claims its turn, because the rule of its queue let it proceed when the queue was last read.
type Claim struct {
	Owner      int64  // the session of the znode
	Epoch      uint64 // when the znode was read: see Session.Epoch
	IsDeleted  bool   // an event reported that the znode is deleted
	HasChanged bool   // the znode may have changed since
	KeepsNode  bool   // the znode stays when the hold ends, until OnVacate
}

// Verdict is the answer to a Claim.
type Verdict int

// What becomes of a contender that claims its turn.
const (
	Granted  Verdict = iota // the contender holds the lock from this moment on
	Unproven                // prove the session, then claim again
	Stale                   // look at the queue again
	Deleted                 // the contender is lost with its znode
	Over                    // the contender is lost with its session
	Closed
)

// Judge answers a claim. The caller has to call OnGrant for what is granted.
func (s *Session) Judge(c Claim, now time.Time) Verdict {
	isTrusted := !s.NeedsProof(now) && (s.IsConnected || !s.suspendEnds)
	return c.Decide(s.Phase, s.ID, s.Epoch, isTrusted)
}

// Decide answers a claim of a client that is in a phase and has a session, a number of connections so far, and a proof or none. Only a claim about
// which everything is known, and that nothing speaks against, is granted. A proof comes last, because the others need none.
func (c Claim) Decide(phase Phase, id int64, epoch uint64, isTrusted bool) Verdict {
	switch {
	case phase >= Closing:
		return Closed
	case c.Owner != id:
		return Over
	case c.IsDeleted:
		return Deleted
	case c.Epoch != epoch || c.HasChanged:
		return Stale
	case !isTrusted:
		return Unproven
	default:
		return Granted
	}
}

// Hold is a znode whose contender holds a lock, or held it and still works.
type Hold struct {
	// For the owner to read.
	Owner     int64     // the session of the znode
	Cause     error     // why the hold ended; nil while it stands
	Until     time.Time // when trust ended; set when the hold ends
	KeepsNode bool      // the znode stays until OnVacate, however the hold ends: of a leader
	Works     int       // functions of the user that run under the hold
	IsGiven   bool      // an exchange deletes the znode: see ExpectDeletion
	IsWriting bool      // the transaction that writes the end of the work deletes the znode: see BeginWriting
	IsVacated bool      // the znode is being deleted, or is deleted

	session uint64 // of the hold: see Session.sessionsOver
	isKept  bool   // the session is saved for the znode: see Session.kept
	isPart  bool   // the hold has no znode: see NewPart
}

// IsLost reports whether a hold ended other than by its owner.
func (h *Hold) IsLost() bool {
	return h.Cause != nil && !zkutil.IsAny(h.Cause, zkutil.ErrReleased, zkutil.ErrClosed, zkutil.ErrMaxHold)
}

// Fate is what happens to the znode of a hold that ends.
type Fate int

// What happens to the znode.
const (
	Stays      Fate = iota // for the work, until OnVacate
	GoesLater              // whoever ended the hold deletes it
	GoesAtOnce             // the session deletes it
	IsGone                 // it is deleted
	None                   // the hold has no znode, or ended before
)

// OnGrant begins a hold.
func (s *Session) OnGrant(c Claim, now time.Time) Hold {
	if s.Standing == 0 {
		s.OnFirstHold(now)
	}
	s.Standing++
	if s.BeginUse() {
		s.OnUse(now)
	}
	return Hold{Owner: c.Owner, KeepsNode: c.KeepsNode, session: s.sessionsOver}
}

// NewPart returns a hold for one of several successive owners of one znode. The whole has the znode.
func NewPart() Hold { return Hold{isPart: true} }

// OnEnd ends a hold. These are all ends:
//
//   - by its owner, also by an Exchange (ErrReleased), or at the limit of a term (ErrMaxHold);
//   - when trust has run out: OnTick, and IsExpired after a pause (ErrSessionLost);
//   - when the session is over, or another: OnHandshake and OnSessionOver (ErrSessionLost);
//   - at a disconnect, if the client asks for that: OnDisconnected (ErrSuspended);
//   - when the znode is deleted (ErrNodeDeleted);
//   - at the end of the client: OnClose (ErrClosed).
//
// A leader's znode stays after any end, so that no other candidate works beside it. That of a lock stays if the client closes while work runs
// under the hold. It does not stay after a loss, because the session can't hold back a successor anyway. Unless the hold was lost, the session is
// saved for a znode that stays as for a hold. Once trust has run out, the session is not saved until it is proven again.
func (s *Session) OnEnd(h *Hold, e End) Fate {
	if h.Cause != nil {
		return None
	}
	isGone := h.IsGiven && errors.Is(e.Cause, zkutil.ErrNodeDeleted)
	if isGone {
		e.Cause = zkutil.ErrReleased
	}
	if h.Cause, h.Until = e.Cause, e.Until; h.isPart {
		return None
	}
	s.Standing--
	if h.KeepsNode || h.IsWriting || h.Works > 0 && errors.Is(h.Cause, zkutil.ErrClosed) {
		if !h.IsLost() {
			h.isKept = true
			s.kept++
		} else {
			s.EndUse()
		}
		return Stays
	}
	s.EndUse()
	h.IsVacated = true
	switch {
	case isGone:
		return IsGone
	case h.IsLost():
		return GoesAtOnce
	default:
		return GoesLater
	}
}

// OnVacate records that the znode of an ended hold is being deleted, or is deleted.
func (s *Session) OnVacate(h *Hold) {
	h.IsVacated = true
	if !h.isKept {
		return
	}
	h.isKept = false
	s.EndUse()
	if h.session == s.sessionsOver {
		s.kept--
	}
}

// IsExpired reports whether a hold has to end because trust in the session has run out.
func (s *Session) IsExpired(h *Hold, now time.Time) bool { return h.Cause == nil && !s.Stands(now) }

// IsZnodeGone reports whether the znode of an ended hold is known to be deleted, although OnVacate was not called.
func (s *Session) IsZnodeGone(h *Hold) bool {
	return errors.Is(h.Cause, zkutil.ErrNodeDeleted) || h.Cause != nil && h.Owner != s.ID
}

// MayWork reports whether a function of the user may begin.
func (s *Session) MayWork() bool { return s.Phase < Closing }

// BeginWork counts a function of the user that runs under the hold, until EndWork.
func (h *Hold) BeginWork() { h.Works++ }

// EndWork reports whether the znode has to be deleted now, because it stayed for this work alone.
func (h *Hold) EndWork() (isDue bool) {
	h.Works--
	return h.Works == 0 && h.Cause != nil && !h.KeepsNode && !h.IsVacated
}

// ExpectDeletion prepares a hold for the transaction of an Exchange. From then on a deletion of its znode ends the hold as if its owner had
// left.
func (h *Hold) ExpectDeletion() { h.IsGiven = true }

// BeginWriting prepares a hold for the transaction that writes the end of its work and deletes the znode. Unless the answer says so, the znode
// stays until the work ends, because an answer may be lost.
func (h *Hold) BeginWriting() { h.IsWriting = true }
