package zkutil

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
)

// Hold is a znode that stands first in its queue, for as long as its session is
// trusted. It counts the entries of its owner, and goes with the last one.
type Hold struct {
	s     *Session
	path  string
	token int64
	key   holdKey
	keep  bool            // the znode stays until Vacate
	ctx   context.Context // ends with the hold; for its own reads
	stop  context.CancelFunc

	revoked   chan struct{}
	onRevoked func() // guarded by s.mu, as everything below

	entries map[*Entry]struct{}
	cause   error // why it has ended; nil while it stands
	until   time.Time
	removal *removal
}

// holdKey is what a hold is found by in a context.
type holdKey struct {
	session     *Session
	dir, recipe string
}

// holdLocked makes a granted place a hold with one entry. Called under s.mu.
func (s *Session) holdLocked(ctx context.Context, p *place) *Entry {
	h := &Hold{
		s: s, path: p.path, token: p.token, key: p.q.key(), keep: p.q.Keep,
		revoked: make(chan struct{}), entries: map[*Entry]struct{}{},
	}
	h.ctx, h.stop = context.WithCancel(s.ctx)
	s.holds[h.path] = h
	s.noteHoldsLocked()
	s.attend(+1)
	if !s.trust.until.IsZero() {
		s.keeperBy(s.trust.until)
	}
	if p.revoked {
		h.revokeLocked()
	}
	s.backgroundLocked(func(context.Context) { h.follow(p.own, p.epoch) })
	return h.enterLocked(ctx)
}

// Reenter enters the hold that ctx carries for this queue. Both results are nil if
// it carries none. If that hold has ended, the error is why: a context never
// silently stands for a new hold. If only ctx has ended, the error is a WaitError, because
// nothing was entered.
func (q *Queue) Reenter(ctx context.Context) (*Entry, error) {
	h, ok := ctx.Value(q.key()).(*Hold)
	if !ok {
		return nil, nil //nolint:nilnil // documented
	}
	var over error // asked before the lock: ctx may be the user's code
	if ctx.Err() != nil {
		over = interrupted(ctx, nil)
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.checkLocked()
	if h.cause != nil {
		return nil, h.cause
	}
	if over != nil {
		return nil, &WaitError{Err: over}
	}
	return h.enterLocked(ctx), nil
}

func (h *Hold) enterLocked(ctx context.Context) *Entry {
	e := &Entry{hold: h}
	if h.keep { // what the user does with the term's context is no business of the candidate's
		ctx = context.WithValue(ctx, leftoversKey{}, nil)
	}
	e.ctx, e.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), h.key, h))
	h.entries[e] = struct{}{}
	return e
}

// checkLocked ends a hold whose time is up when the keeper is late, as after a
// pause of the process.
func (h *Hold) checkLocked() {
	if h.cause == nil && h.s.timeout > 0 && !h.s.trusted() {
		h.endLocked(ErrSessionLost)
	}
}

// endLocked ends the hold: first the contexts, then the znode. Called under s.mu.
func (h *Hold) endLocked(cause error) {
	if h.cause != nil {
		return
	}
	s := h.s
	h.cause, h.until = cause, earliest(s.trust.until, s.clock.now())
	delete(s.holds, h.path)
	s.noteHoldsLocked()
	for e := range h.entries {
		e.cancel(cause)
	}
	h.stop()
	if !h.keep {
		h.removal = s.removeLocked(h.path)
	}
	s.attend(-1)
	switch {
	case errors.Is(cause, ErrReleased):
	case errors.Is(cause, ErrClosed): // which somebody has asked for
		s.log(slog.LevelDebug, "hold ended", "znode", h.path, "err", cause)
	default:
		s.log(slog.LevelWarn, "hold lost", "znode", h.path, "err", cause)
	}
}

// follow hears of a revocation, and of a deletion that no event has told. It ends with the
// hold, as that does when an event tells of the deletion: see Session.fire.
func (h *Hold) follow(own *Watch, epoch uint64) {
	s := h.s
	for {
		s.mu.Lock()
		now, changed := s.epoch, s.changed
		s.mu.Unlock()
		if now == epoch {
			select {
			case <-own.fired:
			case <-changed:
				continue
			case <-h.ctx.Done():
				return
			}
		}
		epoch = now
		var n node
		var err error
		n, own, err = h.readOwn()
		switch {
		case h.ctx.Err() != nil:
			return
		case err != nil:
			s.mu.Lock()
			h.deletedLocked()
			s.mu.Unlock()
			return
		}
		s.mu.Lock()
		if h.cause == nil {
			s.nodes[h.path] = struct{}{}
		}
		if string(n.data) == Revocation {
			h.revokeLocked()
		}
		s.mu.Unlock()
	}
}

// readOwn reads the znode, again and again until that succeeds, the znode is gone or the
// hold ends: as long as it can't be read, its deletion is seen by trying, and no more
// rarely than heartbeats are sent.
func (h *Hold) readOwn() (n node, own *Watch, err error) {
	warned := false
	policy, often := h.s.cfg.Retry.patient(), h.s.period()
	policy.InitialInterval, policy.MaxInterval = min(policy.InitialInterval, often), min(policy.MaxInterval, often)
	there := func(err error) bool { return !errors.Is(err, zk.ErrNoNode) }
	n, err = retry(h.ctx, policy, there, func() (n node, err error) {
		n, own, err = h.s.readWatch(h.ctx, h.path)
		if refused(err) && there(err) && !warned {
			warned = true
			h.s.log(slog.LevelWarn, "own znode can't be read, will be repeated: no revocations until then", "znode", h.path, "err", err)
		}
		return n, err
	})
	return n, own, err
}

// deletedLocked ends the hold, whose znode is gone. If its time is up, the session is the
// cause: the server that ends one deletes its znodes first. Called under s.mu.
func (h *Hold) deletedLocked() {
	h.checkLocked()
	h.endLocked(ErrNodeDeleted)
}

func (h *Hold) revokeLocked() {
	select {
	case <-h.revoked:
		return
	default:
	}
	close(h.revoked)
	if h.onRevoked != nil {
		h.onRevoked()
	}
}
