package session

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Claim is a znode that the rule of its queue let proceed when the queue was last read.
type Claim struct {
	Key       HoldKey
	Path      string
	Token     int64         // czxid of the znode
	Owner     int64         // the znode's session
	Birth     Birth         // of the znode
	Own       *Watch        // on the znode; nil: it was just seen
	Epoch     uint64        // when Own was set, or the znode seen: see Snapshot
	IsRevoked bool          // a revocation was seen already
	IsFirst   bool          // of its queue; false: it need not be
	MaxHold   time.Duration // after which the contexts of the hold's entries end; 0: never
	SlowHold  time.Duration // after which the hold is logged, unless the client has its own time; 0: never
	KeepNode  bool          // the znode stays when the hold ends, until Vacate
	NoWait    bool          // Leave does not wait until the znode is deleted
	UserPath  string        // of the lock, as the user gave it
	Data      []byte        // of the znode, as it was made; nil: the session's id
}

// errUntrusted means that nothing proves at present that the session is alive.
var errUntrusted = errors.New("session not proven alive")

// Grant turns a claim into a hold, entered once, as soon as the session is proven. The latest proof may predate
// a disconnect. Grant returns ErrContenderLost for a deleted znode, and ErrStale for a znode that may have
// changed since the claim was read. Nothing is granted after the end of ctx, because the caller may no longer wait.
//
// A waiter commits nothing before its turn, and proves its session here. Simultaneous grants share one
// proof.
//
// The queue is not read again after a proof, because no contender can be ahead by now. A later znode has a
// higher number. See queue.Rule.
func (s *Session) Grant(ctx context.Context, c Claim) (*Entry, error) {
	var proofBeganAt time.Time // of the latest proof that this grant sent; zero: none, or its pause is over
	for {
		if ctx.Err() != nil {
			return nil, zkutil.EndOf(ctx)
		}
		entry, err := s.holds.tryGrant(ctx, c)
		if !errors.Is(err, errUntrusted) {
			return entry, err
		}
		if !proofBeganAt.IsZero() { // a recent gap shortened what the proof is worth: wait, then prove again
			s.pause(ctx, s.BeatPeriod()/2-time.Since(proofBeganAt))
			proofBeganAt = time.Time{}
			continue
		}
		if proofBeganAt, err = s.proofs.prove(ctx, c.Path, true); err != nil {
			return nil, err
		}
	}
}

// tryGrant turns a claim into a hold, or returns errUntrusted if the session is not proven. All conditions of a
// hold are checked under s.mu, so that nothing already lost is granted.
func (hs *holds) tryGrant(ctx context.Context, c Claim) (*Entry, error) {
	s := hs.s
	s.mu.Lock()
	defer s.mu.Unlock()
	claim, now := core.Claim{Owner: c.Owner, Epoch: c.Epoch, KeepsNode: c.KeepNode}, s.clock.Now()
	if c.Own != nil {
		claim.IsDeleted, claim.HasChanged = c.Own.IsGone(), c.Own.HasFired()
	}
	switch s.core.Judge(claim, now) {
	case core.Granted:
		return hs.newHoldLocked(ctx, c, s.core.OnGrant(claim, now)), nil
	case core.Unproven:
		return nil, errUntrusted
	case core.Stale:
		return nil, zkutil.ErrStale
	case core.Deleted:
		return nil, zkutil.ContenderLost(zkutil.ErrNodeDeleted)
	case core.Over:
		return nil, zkutil.ContenderLost(zkutil.ErrSessionLost)
	default:
		return nil, zkutil.ErrClosed
	}
}

// newHoldLocked turns a granted claim into a hold with one entry.
func (hs *holds) newHoldLocked(ctx context.Context, c Claim, granted core.Hold) *Entry {
	s := hs.s
	h := &Hold{
		s: s, core: granted, path: c.Path, token: c.Token, key: c.Key, birth: c.Birth, noWait: c.NoWait, isFirst: c.IsFirst,
		userPath: c.UserPath, data: c.Data, grantedAt: time.Now(),
	}
	h.entries = h.oneEntry[:0]
	hs.byPath[h.path] = h
	s.keeper.nodes[h.path] = struct{}{}
	if w := s.watches.byKey[wire.WatchKey{Path: h.path, Kind: core.WatchData}]; w != nil && h.isFirst {
		w.noteFirstLocked()
	}
	s.keeper.tellUseLocked()
	s.keeper.wakeByLocked(s.core.LookAfterGrant())
	if c.IsRevoked {
		h.noteRevocationLocked()
	}
	h.showGrantLocked()
	h.expectSlowLocked(c.SlowHold)
	h.followSoonLocked(c)
	h.limitLocked(c.MaxHold)
	return h.enterLocked(ctx, &h.first)
}

// proofs are the transactions that prove the session before a grant. Guarded by Session.mu.
type proofs struct {
	s        *Session
	underWay *proof // nil: none
}

// proof is one such transaction, which several grants may share.
type proof struct {
	ended chan struct{} // closed when the transaction is answered, or not needed any more
}

// takeLocked ends the proof with its answer.
func (p *proof) takeLocked(c *call, _ wire.Answer) { c.flight.s.proofs.endLocked(p) }

// Prove proves the session by a transaction that checks a contender's znode. Prove returns ErrContenderLost if
// the znode is deleted.
func (s *Session) Prove(ctx context.Context, path string) error {
	_, err := s.proofs.prove(ctx, path, false)
	return err
}

// prove is Prove. If it may share a proof, and one is under way, prove sends none, waits for the end of that one, and
// returns a zero beganAt. A thousand grants in one session cost one proof. The caller looks whether the session is
// proven then.
func (p *proofs) prove(ctx context.Context, path string, mayShare bool) (beganAt time.Time, err error) {
	s, now := p.s, time.Now()
	beganAt, err = Repeat(ctx, s, func() (time.Time, error) {
		s.mu.Lock()
		other := p.underWay
		own := p.beginLocked()
		s.mu.Unlock()
		if mayShare && own == nil && p.await(ctx, other) {
			return time.Time{}, nil
		}
		c, err := p.send(ctx, path, own)
		if err == nil {
			_, err = c.wait(ctx)
		}
		return now, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		err = zkutil.ContenderLost(zkutil.ErrNodeDeleted)
	}
	return beganAt, err
}

// isNeededLocked reports whether the session has to be proven before a grant.
func (p *proofs) isNeededLocked() bool {
	s := p.s
	return s.core.NeedsProof(s.clock.Now())
}

// StartProof sends the transaction of Prove if a grant needs a proof, so that a list sent right behind costs no
// extra time. finish waits for the answer, for as long as ctx lasts; Grant learns the outcome.
func (s *Session) StartProof(ctx context.Context, path string) (finish func()) {
	s.mu.Lock()
	var own *proof
	if s.proofs.isNeededLocked() && s.core.IsConnected {
		own = s.proofs.beginLocked()
	}
	s.mu.Unlock()
	if own == nil {
		return func() {}
	}
	c, err := s.proofs.send(ctx, path, own)
	if err != nil {
		return func() {}
	}
	return func() { _, _ = c.wait(ctx) }
}

// beginLocked notes a proof as under way, until endLocked, and returns nil if there is one already.
func (p *proofs) beginLocked() (own *proof) {
	if p.underWay != nil {
		return nil
	}
	p.underWay = &proof{ended: make(chan struct{})}
	return p.underWay
}

// endLocked wakes those who share a proof, unless onProvenLocked has. own is nil for a proof that was not noted.
func (p *proofs) endLocked(own *proof) {
	if own != nil && p.underWay == own {
		close(own.ended)
		p.underWay = nil
	}
}

// onProvenLocked ends the proof under way if any other write has proven the session well enough for a grant.
func (p *proofs) onProvenLocked() {
	if p.underWay != nil && !p.isNeededLocked() {
		p.endLocked(p.underWay)
	}
}

// send sends a proof. If it was noted, it ends with its answer, whether or not a caller waits for it. Callers who share
// it need nothing else from its sender, who may also wait for a list, or give up.
func (p *proofs) send(ctx context.Context, path string, own *proof) (*call, error) {
	s := p.s
	c := checkCall([]string{path})
	if own != nil {
		c.taker = own
	}
	err := s.gate.send(ctx, c)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.endLocked(own)
	}
	return c, err
}

// await waits for a proof under way. await reports false if ctx or the session ends before.
func (p *proofs) await(ctx context.Context, underWay *proof) bool {
	select {
	case <-underWay.ended:
		return true
	case <-ctx.Done():
		return false
	case <-p.s.life.open.Done():
		return false
	}
}

// HeldFor returns how long the znode at path is a hold of this session, 0 if the znode is not a hold.
func (s *Session) HeldFor(path string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holds.byPath[path]; h != nil {
		return time.Since(h.grantedAt)
	}
	return 0
}
