package session

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Part makes a part of the entry's hold: a hold for one of several owners who follow each other on one
// znode. It has entries of its own, a context carries it like any hold, and it ends at the latest with
// the whole. A hold has one part at a time: the caller asks for the next one when onLeft is called.
//
// onLeft is called under no lock when the last entry of the part has been left, unless the whole was
// lost before. Leave waits for what it returns. If the whole has ended, the error of Part is the cause.
func (e *Entry) Part(ctx context.Context, onLeft func() Leaving) (*Entry, error) {
	h, s := e.hold, e.hold.s
	s.mu.Lock()
	defer s.mu.Unlock()
	h.endIfUntrustedLocked()
	if h.cause != nil {
		return nil, h.cause
	}
	h.part = &Hold{
		s: s, path: h.path, token: h.token, key: h.key, userPath: h.userPath, data: h.data, grantedAt: time.Now(), whole: h, onLeft: onLeft,
	}
	h.part.entries = h.part.oneEntry[:0]
	return h.part.enterLocked(ctx, &h.part.first), nil
}

// EndWhole ends the entry's hold with all its entries and its part, and begins to delete the znode. The
// result also waits for the deletion of a hold that was lost before.
func (e *Entry) EndWhole() Leaving {
	h, s := e.hold, e.hold.s
	s.mu.Lock()
	stands := h.cause == nil
	h.endLocked(zkutil.ErrReleased)
	removal := h.removal
	s.mu.Unlock()
	if stands {
		removal.begin(s)
	}
	return newLeaving(s, removal)
}

// ofZnode returns the hold that has the znode: the whole of a part.
func (h *Hold) ofZnode() *Hold {
	if h.whole != nil {
		return h.whole
	}
	return h
}

// endPartLocked is what the end of a part means for the whole, whose znode stays.
func (h *Hold) endPartLocked() {
	if h.whole.part == h {
		h.whole.part = nil
	}
}

// listenerLocked returns who is told of a revocation: the present part, or else the hold.
func (h *Hold) listenerLocked() func() {
	if h.part != nil {
		return h.part.onRevoked
	}
	return h.onRevoked
}
