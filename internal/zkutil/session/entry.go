package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Entry is one acquisition of a hold: the first, or a re-entry.
type Entry struct {
	hold    *Hold
	entered enteredContext
	ctx     context.Context
	cancel  context.CancelCauseFunc
	// Guarded by Session.mu.
	hasLeft     bool
	acquisition *Acquisition // whose LeaseEnd is still to come; nil: there is none
}

// enteredContext has the values of a context, and carries a hold. It never ends.
type enteredContext struct {
	context.Context //nolint:containedctx // the context that has entered

	hold *Hold
}

func (*enteredContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*enteredContext) Done() <-chan struct{}                   { return nil }
func (*enteredContext) Err() error                              { return nil }

func (c *enteredContext) Value(key any) any {
	switch key := key.(type) {
	case HoldKey:
		if key == c.hold.key {
			return c.hold
		}
	case leftoversKey:
		if c.hold.keepsNode { // calls with a term's context leave nothing to the candidate
			return nil
		}
	}
	return c.Context.Value(key)
}

// OnRevoked posts fn to order when a revocation comes, or at once if one has come.
func (e *Entry) OnRevoked(order *Callbacks, fn func()) {
	h := e.hold
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.onRevoked = func() { order.Post(fn) }
	if h.ofZnode().isRevoked {
		h.onRevoked()
	}
}

// Context ends with Leave or with the hold, with the reason as its cause. It has the values of the
// context that entered, and carries the hold.
func (e *Entry) Context() context.Context { return e.ctx }

// Token is the czxid of the hold's znode.
func (e *Entry) Token() int64 { return e.hold.token }

// Path is the path of the hold's znode.
func (e *Entry) Path() string { return e.hold.path }

// GrantedAt is when the hold began.
func (e *Entry) GrantedAt() time.Time { return e.hold.grantedAt }

// Revoked is closed when a peer has asked for the hold.
func (e *Entry) Revoked() <-chan struct{} {
	h := e.hold.ofZnode()
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.revokedDone == nil {
		h.revokedDone = make(chan struct{})
		if h.isRevoked {
			close(h.revokedDone)
		}
	}
	return h.revokedDone
}

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
func (e *Entry) LeaveFor(cause error) error { return e.beginLeave(cause).Await(nil) }

// BeginLeave is Leave without the wait: when it returns, the deletion of the znode has begun.
func (e *Entry) BeginLeave() Leaving { return e.beginLeave(zkutil.ErrReleased) }

func (e *Entry) beginLeave(cause error) Leaving {
	h, s := e.hold, e.hold.s
	s.mu.Lock()
	if e.hasLeft {
		s.mu.Unlock()
		return Leaving{err: zkutil.ErrNotHeld}
	}
	e.hasLeft = true
	h.endIfUntrustedLocked()
	if h.cause != nil {
		defer s.mu.Unlock()
		return Leaving{err: h.cause}
	}
	e.cancel(cause)
	h.entries = slices.DeleteFunc(h.entries, func(other *Entry) bool { return other == e })
	traced, isLast := e.endTracedLocked(nil), len(h.entries) == 0
	if isLast {
		h.endForLocked(zkutil.ErrReleased, cause)
	}
	removal := h.removal
	s.mu.Unlock()
	var left Leaving
	switch {
	case !isLast:
	case removal != nil:
		removal.begin(s)
		left = newLeaving(s, removal)
	case h.onLeft != nil:
		left = h.onLeft()
	}
	if traced != nil {
		traced.callLeaseEnd() // when others can have the lock, because it may take long, or ask for the lock
	}
	return left
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
	isFirst := h.removal == nil
	if isFirst {
		h.removal = h.s.newRemovalLocked(h.path)
	}
	h.s.mu.Unlock()
	if isFirst {
		h.removal.begin(h.s)
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

// Recipe is the name of the recipe, such as "mutex".
func (e *Entry) Recipe() string { return e.hold.key.Recipe }

// UserPath is the path of the lock or the election, as the user gave it.
func (e *Entry) UserPath() string { return e.hold.userPath }

// ID is what others see of the holder.
func (e *Entry) ID() string { return e.hold.id() }
