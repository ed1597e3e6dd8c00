package zkutil

import (
	"context"
	"errors"
	"time"
)

// Entry is one acquisition of a hold: the first, or a re-entry.
type Entry struct {
	hold   *Hold
	ctx    context.Context
	cancel context.CancelCauseFunc
	left   bool // guarded by Session.mu
}

// OnRevoked has fn posted to order when a revocation comes, or now if it has come.
func (e *Entry) OnRevoked(order *Callbacks, fn func()) {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.onRevoked = func() { order.Post(fn) }
	select {
	case <-h.revoked:
		h.onRevoked()
	default:
	}
}

// Context ends with Leave or with the hold, the reason as its cause. It keeps the
// values of the context that entered, and carries the hold.
func (e *Entry) Context() context.Context { return e.ctx }

// Token is the czxid of the hold's znode.
func (e *Entry) Token() int64 { return e.hold.token }

// Path is the path of the hold's znode.
func (e *Entry) Path() string { return e.hold.path }

// Revoked is closed when a peer has asked for the hold.
func (e *Entry) Revoked() <-chan struct{} { return e.hold.revoked }

// TrustedUntil is until when the hold stands unless it is renewed, by the clock of
// time.Now; once it has ended, no later than it did. Zero while the session timeout is
// unknown.
func (e *Entry) TrustedUntil() time.Time {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.checkLocked()
	if h.cause != nil {
		return h.s.clock.local(h.until)
	}
	return h.s.clock.local(h.s.trust.until)
}

// Leave gives the entry back; the last one deletes the znode, unless the queue keeps
// it. It returns ErrNotHeld when called again, and what ended the hold if that was a
// loss.
func (e *Entry) Leave() error { return e.LeaveFor(ErrReleased) }

// LeaveFor is Leave with another cause for the end of the entry's context.
func (e *Entry) LeaveFor(cause error) error {
	h, s := e.hold, e.hold.s
	s.mu.Lock()
	if e.left {
		s.mu.Unlock()
		return ErrNotHeld
	}
	e.left = true
	h.checkLocked()
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
	h.endLocked(ErrReleased)
	removal := h.removal
	s.mu.Unlock()
	if removal == nil {
		return nil
	}
	return removal.wait(s, s.cfg.OperationTimeout)
}

// Loss is what has ended the hold against the will of its owner, nil if nothing has. The
// owner's Leave before that counts as its will.
func (e *Entry) Loss() error {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if errors.Is(h.cause, ErrReleased) {
		return nil
	}
	return h.cause
}

// vacate begins to delete the znode of a hold that has ended and was kept.
func (e *Entry) vacate() *removal {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.removal == nil {
		h.removal = h.s.removeLocked(h.path)
	}
	return h.removal
}

// Stands reports whether the hold does, by the clock: the keeper may be late, as after
// a pause of the process.
func (e *Entry) Stands() bool {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.checkLocked()
	return h.cause == nil && !e.left
}
