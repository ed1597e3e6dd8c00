package session

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
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
	whole     *Hold        // of which this hold is a part; nil: it has a znode of its own
	onLeft    func() error // of a part: see Entry.Part

	// Guarded by s.mu.
	isRevoked   bool               // a revocation has come
	revokedDone chan struct{}      // closed when it has; nil: nobody has asked for it
	watchTimer  *time.Timer        // begins to follow the znode; nil: that has begun with the hold
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

// Claim is a znode that is first in its queue, as it was last read.
type Claim struct {
	Key       HoldKey
	Path      string
	Token     int64  // czxid of the znode
	Owner     int64  // the znode's session
	Own       *Watch // on the znode; nil: it has just been seen
	Epoch     uint64 // when Own was set, or the znode seen: see Snapshot
	IsRevoked bool   // a revocation has been seen already
	IsFirst   bool   // of its queue; false: it need not be
	KeepNode  bool   // the znode stays when the hold ends, until Vacate
	UserPath  string // of the lock, as the user gave it
	Data      []byte // of the znode, as it was made; nil: the session's id
}

// Grant makes a claim a hold, entered once, as soon as the session is proven: the latest proof may be
// from before a time without a connection. It returns ErrContenderLost
// for a znode that is gone, and ErrStale for one that may have changed since it was read.
//
// A waiter commits nothing before its turn, so this is where it proves its session. Grants that come together share
// one proof.
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
		if s.awaitProof(ctx) {
			continue
		}
		if !proofBeganAt.IsZero() { // a recent gap has shortened what the proof is worth: wait, then prove again
			s.pause(ctx, s.beatPeriod()/2-time.Since(proofBeganAt))
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
	case c.Own != nil && c.Own.IsGone():
		return nil, zkutil.ContenderLost(zkutil.ErrNodeDeleted)
	case c.Epoch != s.link.epoch || c.Own != nil && c.Own.HasFired():
		return nil, zkutil.ErrStale
	case s.needsProofLocked() || s.cfg.SuspendEnds && !s.link.isConnected:
		return nil, errUntrusted
	}
	return s.newHoldLocked(ctx, c), nil
}

// newHoldLocked makes a granted claim a hold with one entry.
func (s *Session) newHoldLocked(ctx context.Context, c Claim) *Entry {
	h := &Hold{
		s: s, path: c.Path, token: c.Token, key: c.Key, keepsNode: c.KeepNode, isFirst: c.IsFirst,
		userPath: c.UserPath, data: c.Data, grantedAt: time.Now(),
	}
	h.entries = h.oneEntry[:0]
	if trust := &s.live.trust; len(s.holds) == 0 && !s.live.heldSince.After(zkutil.Latest(trust.lastAuditAt, trust.lastReadAt)) {
		s.live.heldSince = s.clock.now() // holds that leave no time for a look between them count as one
	}
	s.holds[h.path] = h
	s.live.nodes[h.path] = struct{}{}
	if w := s.watches[wire.WatchKey{Path: h.path, Kind: wire.WatchData}]; w != nil && h.isFirst {
		w.noteFirstLocked()
	}
	s.noteHoldsLocked()
	s.retainLocked()
	// The latest proof may be as old as 2T/3, and a gap may have shortened the trust.
	s.wakeKeeperByLocked(zkutil.Earliest(s.live.trust.until, s.live.nextBeatAt(facts{holds: 1})))
	if c.IsRevoked {
		h.noteRevocationLocked()
	}
	h.showGrantLocked()
	h.followSoonLocked(c) //nolint:contextcheck // that goes on with the session, not with ctx
	return h.enterLocked(ctx, &h.first)
}

// followSoonLocked follows the znode of a new hold: at once if there is a watch on it.
func (h *Hold) followSoonLocked(c Claim) {
	if c.Own != nil {
		h.followLocked(c.Own, c.Epoch)
		return
	}
	h.watchTimer = time.AfterFunc(WatchOwnAfter, func() { // stopped with the hold
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		h.followLocked(nil, 0)
	})
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
	if h.watchTimer != nil {
		h.watchTimer.Stop()
	}
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

// WatchOwnAfter is how long a hold has no watch on its own znode: most are over by then. A deletion or a
// revocation is told within 10 ms on a quick line.
const WatchOwnAfter = 3 * time.Millisecond

// followLocked begins to follow the znode of a hold that has not ended.
func (h *Hold) followLocked(own *Watch, epoch uint64) {
	if h.cause != nil {
		return
	}
	ctx, end := context.WithCancel(h.s.life.tasksCtx)
	h.endReads = end
	h.s.backgroundLocked(func(context.Context) { h.followOwnNode(ctx, own, epoch) })
}

// followOwnNode reads the znode again whenever it may have changed, for a revocation, or a deletion
// whose event was lost; at once without a watch. It ends with the hold. An event of the deletion ends the
// hold elsewhere: see Session.fireWatches.
func (h *Hold) followOwnNode(ctx context.Context, own *Watch, epoch uint64) {
	s := h.s
	for {
		now := s.Snapshot()
		if own != nil && now.Epoch == epoch {
			select {
			case <-own.fired:
			case <-now.Changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		epoch = s.Snapshot().Epoch // the watch may have fired because of a new connection
		var n Node
		var err error
		n, own, err = h.readOwn(ctx)
		switch {
		case ctx.Err() != nil:
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
func (h *Hold) readOwn(ctx context.Context) (n Node, own *Watch, err error) {
	hasWarned := false
	policy, period := h.s.cfg.Retry.Patient(), h.s.beatPeriod()
	policy.InitialInterval, policy.MaxInterval = min(policy.InitialInterval, period), min(policy.MaxInterval, period)
	mayExist := func(err error) bool { return !errors.Is(err, zk.ErrNoNode) }
	n, err = zkutil.RepeatWhile(ctx, policy, mayExist, func() (n Node, err error) {
		n, own, err = h.s.readAndWatch(ctx, h.path)
		if zkutil.IsRefused(err) && mayExist(err) && !hasWarned {
			hasWarned = true
			h.s.Log(refusalLevel(err), "own znode can't be read, will be repeated: no revocations until then", "znode", h.path, "err", err)
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
	if h.isRevoked {
		return
	}
	h.isRevoked = true
	if h.revokedDone != nil {
		close(h.revokedDone)
	}
	if listener := h.listenerLocked(); listener != nil {
		listener()
	}
}
