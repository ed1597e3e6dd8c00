package session

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

var (
	// errUnanswered: connected, but the server is silent.
	errUnanswered = errors.New("the server does not answer")
	// errUntrusted: nothing proves right now that the session is alive.
	errUntrusted = errors.New("session not proven alive")
)

// Revocation is the text that a peer writes into a contender's znode to ask for its lease, the same
// as Curator's.
const Revocation = "__REVOKE__"

// Hold is a znode that is first in its queue, for as long as its session is trusted. It counts the
// entries of its owner, and ends with the last one.
type Hold struct {
	s           *Session
	path        string
	token       int64
	key         HoldKey
	keepsNode   bool            // the znode stays until Vacate
	ctx         context.Context // of its own reads; ends with the hold
	endReads    context.CancelFunc
	revokedDone chan struct{} // closed when a revocation has come

	// Guarded by s.mu.
	onRevoked func()
	entries   map[*Entry]struct{}
	cause     error     // why the hold has ended; nil while it stands
	until     time.Time // until when it was trusted; set when it ends
	removal   *removal
}

// HoldKey is the key of a hold in a context.
type HoldKey struct {
	Session     *Session
	Dir, Recipe string
}

// Claim is a znode that is first in its queue, as it was last read.
type Claim struct {
	Key       HoldKey
	Path      string
	Token     int64  // czxid of the znode
	Owner     int64  // the znode's session
	Own       *Watch // on the znode
	Epoch     uint64 // when Own was set: see Snapshot
	IsRevoked bool   // a revocation has been seen already
	KeepNode  bool   // the znode stays when the hold ends, until Vacate
}

// Grant makes a claim a hold, entered once, as soon as the session is proven: the latest proof may be
// from before a time without a connection. It returns ErrContenderLost
// for a znode that is gone, and ErrStale for one that may have changed since it was read.
//
// The queue is not read again after a proof, because no contender can have come ahead: a later znode
// has a higher number. See queue.Rule.
func (s *Session) Grant(ctx context.Context, c Claim) (*Entry, error) {
	var proofBeganAt time.Time // of the latest proof; zero: none yet
	for {
		entry, err := s.tryGrant(ctx, c)
		if !errors.Is(err, errUntrusted) {
			return entry, err
		}
		if !proofBeganAt.IsZero() { // a recent gap has shortened what the proof is worth: wait, then prove again
			zkutil.Pause(ctx, s.beatPeriod()/2-time.Since(proofBeganAt))
		}
		proofBeganAt = time.Now()
		if err := s.Prove(ctx, c.Path); err != nil {
			return nil, err
		}
	}
}

// tryGrant makes a claim a hold, unless the session is not proven: then it returns errUntrusted. It
// checks everything that a hold rests on under s.mu, so that nothing is granted that is lost already.
func (s *Session) tryGrant(ctx context.Context, c Claim) (*Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.life.isClosingLocked():
		return nil, zkutil.ErrClosed
	case c.Owner != s.link.id, c.Owner != s.conn.SessionID():
		return nil, zkutil.ContenderLost(zkutil.ErrSessionLost)
	case c.Own.IsGone():
		return nil, zkutil.ContenderLost(zkutil.ErrNodeDeleted)
	case c.Epoch != s.link.epoch || c.Own.HasFired():
		return nil, zkutil.ErrStale
	case !s.isTrustedLocked() || s.cfg.SuspendEnds && !s.link.isConnected:
		return nil, errUntrusted
	}
	return s.newHoldLocked(ctx, c), nil
}

// newHoldLocked makes a granted claim a hold with one entry.
func (s *Session) newHoldLocked(ctx context.Context, c Claim) *Entry {
	h := &Hold{
		s: s, path: c.Path, token: c.Token, key: c.Key, keepsNode: c.KeepNode,
		revokedDone: make(chan struct{}), entries: map[*Entry]struct{}{},
	}
	h.ctx, h.endReads = context.WithCancel(s.life.tasksCtx)
	s.holds[h.path] = h
	s.noteHoldsLocked()
	s.retainLocked()
	if !s.live.trust.until.IsZero() {
		s.wakeKeeperByLocked(s.live.trust.until)
	}
	if c.IsRevoked {
		h.noteRevocationLocked()
	}
	s.backgroundLocked(func(context.Context) { h.followOwnNode(c.Own, c.Epoch) })
	return h.enterLocked(ctx)
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
	return h.enterLocked(ctx), nil
}

func (h *Hold) enterLocked(ctx context.Context) *Entry {
	e := &Entry{hold: h}
	if h.keepsNode { // calls with a term's context leave nothing to the candidate
		ctx = context.WithValue(ctx, leftoversKey{}, nil)
	}
	e.ctx, e.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), h.key, h))
	h.entries[e] = struct{}{}
	return e
}

// endIfUntrustedLocked ends the hold if its trust has run out. The keeper does that too, but is late
// after a pause of the process.
func (h *Hold) endIfUntrustedLocked() {
	if h.cause == nil && h.s.live.timeout > 0 && !h.s.isTrustedLocked() {
		h.endLocked(zkutil.ErrSessionLost)
	}
}

// endLocked ends the hold: first the contexts of its entries, then the znode.
func (h *Hold) endLocked(cause error) {
	if h.cause != nil {
		return
	}
	s := h.s
	h.cause, h.until = cause, zkutil.Earliest(s.live.trust.until, s.clock.now())
	delete(s.holds, h.path)
	s.noteHoldsLocked()
	for e := range h.entries {
		e.cancel(cause)
	}
	h.endReads()
	if !h.keepsNode {
		h.removal = s.beginRemovalLocked(h.path)
	}
	s.releaseLocked()
	switch {
	case errors.Is(cause, zkutil.ErrReleased):
	case errors.Is(cause, zkutil.ErrClosed): // the user has asked for it
		s.Log(slog.LevelDebug, "hold ended", "znode", h.path, "err", cause)
	default:
		s.Log(slog.LevelWarn, "hold lost", "znode", h.path, "err", cause)
	}
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

// followOwnNode reads the znode again whenever it may have changed, for a revocation, or a deletion
// whose event was lost. It ends with the hold. An event of the deletion ends the hold elsewhere: see
// Session.fireWatches.
func (h *Hold) followOwnNode(own *Watch, epoch uint64) {
	s := h.s
	for {
		now := s.Snapshot()
		if now.Epoch == epoch {
			select {
			case <-own.fired:
			case <-now.Changed:
				continue
			case <-h.ctx.Done():
				return
			}
		}
		epoch = now.Epoch
		var n Node
		var err error
		n, own, err = h.readOwn()
		switch {
		case h.ctx.Err() != nil:
			return
		case err != nil:
			s.mu.Lock()
			h.endAsDeletedLocked()
			s.mu.Unlock()
			return
		}
		s.mu.Lock()
		if h.cause == nil {
			s.live.nodes[h.path] = struct{}{}
		}
		if string(n.Data) == Revocation {
			h.noteRevocationLocked()
		}
		s.mu.Unlock()
	}
}

// readOwn reads the znode until that succeeds, the znode is gone, or the hold ends. It tries at least
// as often as heartbeats are sent, because while the znode can't be read its deletion is noticed here
// alone.
func (h *Hold) readOwn() (n Node, own *Watch, err error) {
	hasWarned := false
	policy, period := h.s.cfg.Retry.Patient(), h.s.beatPeriod()
	policy.InitialInterval, policy.MaxInterval = min(policy.InitialInterval, period), min(policy.MaxInterval, period)
	mayExist := func(err error) bool { return !errors.Is(err, zk.ErrNoNode) }
	n, err = zkutil.RepeatWhile(h.ctx, policy, mayExist, func() (n Node, err error) {
		n, own, err = h.s.readAndWatch(h.ctx, h.path)
		if zkutil.IsRefused(err) && mayExist(err) && !hasWarned {
			hasWarned = true
			h.s.Log(slog.LevelWarn, "own znode can't be read, will be repeated: no revocations until then", "znode", h.path, "err", err)
		}
		return n, err
	})
	return n, own, err
}

// endAsDeletedLocked ends the hold, whose znode is gone. If its trust has run out, the cause is the
// loss of the session, because the servers delete the znodes of a session that they end.
func (h *Hold) endAsDeletedLocked() {
	h.endIfUntrustedLocked()
	h.endLocked(zkutil.ErrNodeDeleted)
}

func (h *Hold) noteRevocationLocked() {
	select {
	case <-h.revokedDone:
		return
	default:
	}
	close(h.revokedDone)
	if h.onRevoked != nil {
		h.onRevoked()
	}
}
