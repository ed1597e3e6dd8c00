package session

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Claim is a znode that the rule of its queue let proceed when the queue was last read.
type Claim struct {
	Key       HoldKey
	Path      string
	Token     int64         // czxid of the znode
	Owner     int64         // the znode's session
	Own       *Watch        // on the znode; nil: it has just been seen
	Epoch     uint64        // when Own was set, or the znode seen: see Snapshot
	IsRevoked bool          // a revocation has been seen already
	IsFirst   bool          // of its queue; false: it need not be
	MaxHold   time.Duration // after which the contexts of the hold's entries end; 0: never
	KeepNode  bool          // the znode stays when the hold ends, until Vacate
	UserPath  string        // of the lock, as the user gave it
	Data      []byte        // of the znode, as it was made; nil: the session's id
}

// errUntrusted means that nothing proves at present that the session is alive.
var errUntrusted = errors.New("session not proven alive")

// Grant turns a claim into a hold, entered once, as soon as the session is proven: the latest proof may predate
// a disconnect. Grant returns ErrContenderLost for a deleted znode, and ErrStale for a znode that may have
// changed since the claim was read. Nothing is granted after the end of ctx, because the caller may have gone.
//
// A waiter commits nothing before its turn, and proves its session here. Grants that come together share one
// proof.
//
// The queue is not read again after a proof, because no contender can have come ahead: a later znode has a
// higher number. See queue.Rule.
func (s *Session) Grant(ctx context.Context, c Claim) (*Entry, error) {
	var proofBeganAt time.Time // of the proof of this grant; zero: there is none, or its pause is over
	for {
		if ctx.Err() != nil {
			return nil, zkutil.EndOf(ctx)
		}
		entry, err := s.holds.tryGrant(ctx, c)
		if !errors.Is(err, errUntrusted) {
			return entry, err
		}
		if !proofBeganAt.IsZero() { // a recent gap has shortened what the proof is worth: wait, then prove again
			s.pause(ctx, s.keeper.beatPeriod()/2-time.Since(proofBeganAt))
			proofBeganAt = time.Time{}
			continue
		}
		began := time.Now()
		isOwn, err := s.proofs.prove(ctx, c.Path, true)
		if err != nil {
			return nil, err
		}
		if isOwn {
			proofBeganAt = began
		}
	}
}

// tryGrant turns a claim into a hold, or returns errUntrusted if the session is not proven. All conditions of a
// hold are checked under s.mu, so that nothing already lost is granted.
func (hs *holds) tryGrant(ctx context.Context, c Claim) (*Entry, error) {
	s := hs.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.life.isClosingLocked():
		return nil, zkutil.ErrClosed
	case c.Owner != s.link.id, c.Owner != s.link.conn.SessionID():
		return nil, zkutil.ContenderLost(zkutil.ErrSessionLost)
	case c.Own != nil && c.Own.IsGone():
		return nil, zkutil.ContenderLost(zkutil.ErrNodeDeleted)
	case c.Epoch != s.link.epoch || c.Own != nil && c.Own.HasFired():
		return nil, zkutil.ErrStale
	case s.proofs.isNeededLocked() || s.cfg.SuspendEnds && !s.link.isConnected:
		return nil, errUntrusted
	}
	return hs.newHoldLocked(ctx, c), nil
}

// newHoldLocked turns a granted claim into a hold with one entry.
func (hs *holds) newHoldLocked(ctx context.Context, c Claim) *Entry {
	s := hs.s
	h := &Hold{
		s: s, path: c.Path, token: c.Token, key: c.Key, owner: c.Owner, keepsNode: c.KeepNode, isFirst: c.IsFirst,
		userPath: c.UserPath, data: c.Data, grantedAt: time.Now(),
	}
	h.entries = h.oneEntry[:0]
	if len(hs.byPath) == 0 {
		s.ledger.OnFirstHold(s.clock.Now())
	}
	hs.byPath[h.path] = h
	s.keeper.nodes[h.path] = struct{}{}
	if h.isFirst {
		s.watches.markFirstLocked(h.path)
	}
	hs.tellWireLocked()
	s.keeper.retainLocked()
	s.keeper.wakeByLocked(s.ledger.LookAfterGrant())
	if c.IsRevoked {
		h.noteRevocationLocked()
	}
	h.showGrantLocked()
	h.expectSlowLocked()
	h.followSoonLocked(c)
	h.limitLocked(c.MaxHold)
	return h.enterLocked(ctx, &h.first)
}

// proofs are the transactions that prove the session before a grant. Guarded by Session.mu.
type proofs struct {
	s        *Session
	underWay chan struct{} // closed when the current proof is answered, or not needed any more; nil: no proof under way
}

// Prove proves the session by a transaction that checks a contender's znode. Prove returns ErrContenderLost if
// the znode is gone.
func (s *Session) Prove(ctx context.Context, path string) error {
	_, err := s.proofs.prove(ctx, path, false)
	return err
}

// prove is Prove. If it may share, and a proof is under way, it waits for that one instead, and reports false:
// a thousand grants in one session cost one proof. Whether the session is proven then is for the caller to see.
func (p *proofs) prove(ctx context.Context, path string, mayShare bool) (isOwn bool, err error) {
	s := p.s
	isOwn, err = Repeat(ctx, s, func() (bool, error) {
		s.mu.Lock()
		endLocked, other := p.beginLocked()
		s.mu.Unlock()
		if mayShare && other != nil && p.await(ctx, other) {
			return false, nil
		}
		c, err := p.send(ctx, path, endLocked)
		if err == nil {
			_, err = c.wait(ctx)
		}
		return true, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		err = zkutil.ContenderLost(zkutil.ErrNodeDeleted)
	}
	return isOwn, err
}

// isNeededLocked reports whether the session has to be proven before a grant.
func (p *proofs) isNeededLocked() bool {
	s := p.s
	return s.ledger.IsThin(s.clock.Now()) || !s.keeper.isTrustedLocked()
}

// StartProof sends the transaction of Prove if a grant needs a proof, so that a list sent right behind costs no
// extra time. finish waits for the answer, for as long as ctx lasts; Grant learns the outcome.
func (s *Session) StartProof(ctx context.Context, path string) (finish func()) {
	s.mu.Lock()
	if !s.proofs.isNeededLocked() || !s.link.isConnected || s.proofs.underWay != nil {
		s.mu.Unlock()
		return func() {}
	}
	endLocked, _ := s.proofs.beginLocked()
	s.mu.Unlock()
	c, err := s.proofs.send(ctx, path, endLocked)
	if err != nil {
		return func() {}
	}
	return func() { _, _ = c.wait(ctx) }
}

// beginLocked notes a proof as under way, until endLocked is called. If another one is under way already, beginLocked
// notes nothing, and returns what is closed at the end of that one.
func (p *proofs) beginLocked() (endLocked func(), other <-chan struct{}) {
	if p.underWay != nil {
		return func() {}, p.underWay
	}
	done := make(chan struct{})
	p.underWay = done
	return func() {
		if p.underWay == done { // else another proof has come before
			p.endLocked()
		}
	}, nil
}

// onProvenLocked wakes those who share a proof, if another one has come before and will do for a grant: on an adopted connection, an answer
// that is lost may leave the shared one unanswered for as long as the connection lives.
func (p *proofs) onProvenLocked() {
	if p.underWay != nil && !p.isNeededLocked() {
		p.endLocked()
	}
}

func (p *proofs) endLocked() {
	close(p.underWay)
	p.underWay = nil
}

// send sends a proof that was begun. The proof ends with its answer, whether or not anybody waits for it: those who
// share it need nothing else from its sender, who may wait for a list as well, or have given up.
func (p *proofs) send(ctx context.Context, path string, endLocked func()) (*call, error) {
	s := p.s
	c := checkCall([]string{path})
	c.onAnsweredLocked = endLocked
	err := s.gate.send(ctx, c)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		endLocked()
	}
	return c, err
}

// await waits for a proof under way. await reports false if ctx or the session ends before.
func (p *proofs) await(ctx context.Context, underWay <-chan struct{}) bool {
	select {
	case <-underWay:
		return true
	case <-ctx.Done():
		return false
	case <-p.s.life.open.Done():
		return false
	}
}

// HeldFor returns for how long the znode at path has been a hold of this session, 0 if the znode is not a hold.
func (s *Session) HeldFor(path string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.holds.byPath[path]; h != nil {
		return time.Since(h.grantedAt)
	}
	return 0
}

func (hs *holds) hasOneToSaveLocked() bool {
	return len(hs.byPath) > 0 && hs.s.keeper.isTrustedLocked()
}
