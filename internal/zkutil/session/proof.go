package session

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Prove proves the session by a transaction that checks the znode of a contender. It returns
// ErrContenderLost if the znode is gone.
func (s *Session) Prove(ctx context.Context, path string) error {
	_, err := Repeat(ctx, s, func() (struct{}, error) {
		end := s.beginProof()
		defer end()
		_, err := s.run(ctx, checkCall([]string{path}))
		return struct{}{}, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return zkutil.ContenderLost(zkutil.ErrNodeDeleted)
	}
	return err
}

// needsProofLocked reports whether the session has to be proven before a grant. A proof that came more than T/6 ago, and
// ends within T/3, does not do: if the quorum takes its time for the next one, the lease would end at once.
func (s *Session) needsProofLocked() bool {
	now, trust := s.clock.now(), &s.live.trust
	isOld := s.live.timeout > 0 && now.Sub(trust.proofCameAt) > s.live.period() && trust.until.Sub(now) < s.live.lifetime()/3
	return isOld || !s.isTrustedLocked()
}

// StartProof sends the transaction of Prove if a grant needs it: so a list that is sent right behind it costs no time
// of its own. finish waits for the answer, for as long as ctx lasts; what it was, Grant finds out.
func (s *Session) StartProof(ctx context.Context, path string) (finish func()) {
	s.mu.Lock()
	isNeeded := s.needsProofLocked() && s.link.isConnected && s.proving == nil
	s.mu.Unlock()
	if !isNeeded {
		return func() {}
	}
	end, c := s.beginProof(), checkCall([]string{path})
	if err := s.send(ctx, c); err != nil {
		end()
		return func() {}
	}
	return func() {
		_, _ = c.wait(ctx)
		end()
	}
}

// beginProof notes that a proof is under way, until end is called. There may be others.
func (s *Session) beginProof() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proving != nil {
		return func() {}
	}
	done := make(chan struct{})
	s.proving = done
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.proving = nil
		close(done)
	}
}

// awaitProof waits for a proof that is under way, so that a thousand grants in one session cost one. It reports false
// if there is none.
func (s *Session) awaitProof(ctx context.Context) bool {
	s.mu.Lock()
	proving := s.proving
	s.mu.Unlock()
	if proving == nil {
		return false
	}
	select {
	case <-proving:
	case <-ctx.Done():
		return false
	case <-s.life.open.Done():
		return false
	}
	return true
}
