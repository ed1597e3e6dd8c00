package session

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Entry is one acquisition of a hold: the first, or a re-entry.
type Entry struct {
	hold    *Hold
	ctx     context.Context
	cancel  context.CancelCauseFunc
	hasLeft bool // guarded by Session.mu
}

// OnRevoked posts fn to order when a revocation comes, or at once if one has come.
func (e *Entry) OnRevoked(order *Callbacks, fn func()) {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.onRevoked = func() { order.Post(fn) }
	select {
	case <-h.revokedDone:
		h.onRevoked()
	default:
	}
}

// Context ends with Leave or with the hold, with the reason as its cause. It has the values of the
// context that entered, and carries the hold.
func (e *Entry) Context() context.Context { return e.ctx }

// Token is the czxid of the hold's znode.
func (e *Entry) Token() int64 { return e.hold.token }

// Path is the path of the hold's znode.
func (e *Entry) Path() string { return e.hold.path }

// Revoked is closed when a peer has asked for the hold.
func (e *Entry) Revoked() <-chan struct{} { return e.hold.revokedDone }

// TrustedUntil is until when the hold stands unless another heartbeat proves the session, by the
// clock of time.Now. Once the hold has ended it is no later than the end. It is zero while the
// session timeout is unknown.
func (e *Entry) TrustedUntil() time.Time {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.endIfUntrustedLocked()
	if h.cause != nil {
		return h.s.clock.local(h.until)
	}
	return h.s.clock.local(h.s.live.trust.until)
}

// Leave gives the entry back. The last entry ends the hold, and deletes the znode unless the claim
// keeps it. Leave returns ErrNotHeld when it is called again, and the cause of the hold's end if the
// hold has ended before.
func (e *Entry) Leave() error { return e.LeaveFor(zkutil.ErrReleased) }

// LeaveFor is Leave with another cause for the end of the entry's context.
func (e *Entry) LeaveFor(cause error) error {
	h, s := e.hold, e.hold.s
	s.mu.Lock()
	if e.hasLeft {
		s.mu.Unlock()
		return zkutil.ErrNotHeld
	}
	e.hasLeft = true
	h.endIfUntrustedLocked()
	if h.cause != nil {
		defer s.mu.Unlock()
		return h.cause
	}
	e.cancel(cause)
	delete(h.entries, e)
	if len(h.entries) > 0 {
		s.mu.Unlock()
		return nil
	}
	h.endLocked(zkutil.ErrReleased)
	removal := h.removal
	s.mu.Unlock()
	if removal == nil {
		return nil
	}
	return removal.awaitGone(s, s.cfg.OperationTimeout)
}

// Loss is the cause of the hold's end, nil while the hold stands and after its owner has left it.
func (e *Entry) Loss() error {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if errors.Is(h.cause, zkutil.ErrReleased) {
		return nil
	}
	return h.cause
}

// Vacate begins to delete the znode of a hold that has ended and was kept. The channel is closed
// once the znode is known to be gone.
func (e *Entry) Vacate() (done <-chan struct{}) {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.removal == nil {
		h.removal = h.s.beginRemovalLocked(h.path)
	}
	return h.removal.done
}

// Stands reports whether the hold stands and the entry has not left it.
func (e *Entry) Stands() bool {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.endIfUntrustedLocked()
	return h.cause == nil && !e.hasLeft
}
