package session

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

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

// errUntrusted means that nothing proves right now that the session is alive.
var errUntrusted = errors.New("session not proven alive")

// Grant makes a claim a hold, entered once, as soon as the session is proven: the latest proof may be
// from before a time without a connection. It returns ErrContenderLost
// for a znode that is gone, and ErrStale for one that may have changed since it was read. Nothing is granted
// after the end of ctx, because the caller may have gone.
//
// A waiter commits nothing before its turn, so this is where it proves its session. Grants that come together share
// one proof.
//
// The queue is not read again after a proof, because no contender can have come ahead: a later znode
// has a higher number. See queue.Rule.
func (s *Session) Grant(ctx context.Context, c Claim) (*Entry, error) {
	var proofBeganAt time.Time // of the latest proof; zero: none yet
	for {
		if ctx.Err() != nil {
			return nil, zkutil.EndOf(ctx)
		}
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
	if h.isFirst {
		s.noteFirstLocked(h.path)
	}
	s.noteHoldsLocked()
	s.retainLocked()
	// The latest proof may be as old as 2T/3, and a gap may have shortened the trust.
	s.wakeKeeperByLocked(zkutil.Earliest(s.live.trust.until, s.live.nextBeatAt(facts{holds: 1})))
	if c.IsRevoked {
		h.noteRevocationLocked()
	}
	h.showGrantLocked()
	h.followSoonLocked(c)
	return h.enterLocked(ctx, &h.first)
}
