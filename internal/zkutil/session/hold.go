package session

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Hold is a znode that is first in its queue, for as long as its session is trusted. It counts the
// entries of its owner, and ends with the last one.
type Hold struct {
	s         *Session
	path      string
	token     int64
	key       HoldKey
	keepsNode bool   // the znode stays until Vacate
	isFirst   bool   // of its queue
	userPath  string // of the lock, as the user gave it
	data      []byte // of the znode, as it was made; nil: the session's id
	grantedAt time.Time
	first     Entry
	whole     *Hold          // of which this hold is a part; nil: it has a znode of its own
	onLeft    func() Leaving // of a part: see Entry.Part

	// Guarded by s.mu.
	isRevoked   bool               // a revocation has come
	revokedDone chan struct{}      // closed when it has; nil: nobody has asked for it
	endReads    context.CancelFunc // ends the reads of the znode; nil: it is not followed yet
	onRevoked   func()
	part        *Hold // the present one; nil: none
	entries     []*Entry
	oneEntry    [1]*Entry // room for entries, which are mostly one
	cause       error     // why the hold has ended; nil while it stands
	until       time.Time // until when it was trusted; set when it ends
	removal     *removal
}

// HoldKey is the key of a hold in a context.
type HoldKey struct {
	Session     *Session
	Dir, Recipe string
}

// HoldOf returns the hold that ctx carries for key, nil if it carries none.
func HoldOf(ctx context.Context, key HoldKey) *Hold {
	h, _ := ctx.Value(key).(*Hold)
	return h
}

// Enter enters the hold again. If the hold has ended, the error is its cause. Else, if refusal is not
// nil, the error is refusal: the caller asks ctx for its end, because ctx may be code of the user,
// which must not run under the session's lock.
func (h *Hold) Enter(ctx context.Context, refusal error) (*Entry, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.endIfUntrustedLocked()
	if h.cause != nil {
		return nil, h.cause
	}
	if refusal != nil {
		return nil, refusal
	}
	return h.enterLocked(ctx, &Entry{}), nil
}

func (h *Hold) enterLocked(ctx context.Context, e *Entry) *Entry {
	e.hold, e.entered = h, enteredContext{ctx, h}
	e.ctx, e.cancel = context.WithCancelCause(&e.entered)
	h.entries = append(h.entries, e)
	return e
}

// endIfUntrustedLocked ends the hold if its trust has run out. The keeper does that too, but is late
// after a pause of the process.
func (h *Hold) endIfUntrustedLocked() {
	if h.cause == nil && h.s.live.timeout > 0 && !h.s.isTrustedLocked() {
		h.ofZnode().endLocked(zkutil.ErrSessionLost)
	}
}

// endLocked ends the hold: first the contexts of its entries, then the znode. After ErrReleased the caller
// has to begin the removal.
func (h *Hold) endLocked(cause error) { h.endForLocked(cause, cause) }

// endForLocked is endLocked with another reason for the log.
func (h *Hold) endForLocked(cause, why error) {
	if h.cause != nil {
		return
	}
	s := h.s
	h.cause, h.until = cause, zkutil.Earliest(s.live.trust.until, s.clock.now())
	for _, e := range h.entries {
		e.cancel(cause)
		if traced := e.endTracedLocked(cause); traced != nil {
			s.traceCalls.Post(traced.callLeaseEnd)
		}
	}
	if h.whole != nil {
		h.endPartLocked()
		return
	}
	if h.part != nil {
		h.part.endLocked(cause)
	}
	delete(s.holds, h.path)
	s.noteHoldsLocked()
	if h.endReads != nil {
		h.endReads()
	}
	if !h.keepsNode {
		h.removal = s.newRemovalLocked(h.path)
		if !errors.Is(cause, zkutil.ErrReleased) { // else its owner begins it
			s.removeInBackgroundLocked(h.removal, nil)
		}
	}
	s.releaseLocked()
	h.showEndLocked(why)
}

// endHoldsLocked ends all holds of the session.
func (s *Session) endHoldsLocked(cause error) {
	for _, hold := range s.holds {
		hold.endLocked(cause)
	}
}

// noteHoldsLocked tells the wire whether something is held.
func (s *Session) noteHoldsLocked() {
	if s.wire != nil {
		s.wire.SetHolding(len(s.holds) > 0)
	}
}
