package session

import (
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// beatPeriod is the time between two heartbeats.
func (s *Session) beatPeriod() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live.period()
}

// retainLocked notes a reason to keep the session proven.
func (s *Session) retainLocked() {
	if s.live.users == 0 {
		s.live.inUseSince = s.clock.now()
		s.wakeKeeperByLocked(s.live.inUseSince.Add(s.live.period()))
	}
	s.live.users++
}

// releaseLocked ends what retainLocked began.
func (s *Session) releaseLocked() {
	s.live.users--
	if s.live.users == 0 && s.life.isClosingLocked() {
		s.announceLocked() // Close of an adopted connection waits for it
	}
}

// Retain notes a reason to keep the session proven, until release is called.
func (s *Session) Retain() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retainLocked()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.releaseLocked()
	}
}

// recordAnswer takes note of the server's answer to a write. Only a committed write proves
// the session; err is nil for one.
func (s *Session) recordAnswer(w wire.SentWrite, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.ID != s.link.id {
		return
	}
	trust, now := &s.live.trust, s.clock.now()
	trust.beatsSentAt = slices.DeleteFunc(trust.beatsSentAt, func(sentAt time.Time) bool { return !sentAt.After(w.At) }) // answers come in order
	trust.commitTook = max(now.Sub(w.At), trust.commitTook/2)
	if err != nil || !w.At.After(trust.proofSentAt) {
		return
	}
	trust.proofSentAt, trust.proofCameAt = w.At, now
	if s.wire != nil {
		s.wire.DropAbandoned(w.At)
	}
	if s.live.timeout > 0 {
		s.extendTrustLocked(s.live.proofLimit(w))
	}
	if s.state == Lost && s.link.isConnected {
		s.enterStateLocked(Reconnected)
	}
}

// extendTrustLocked trusts the session until a later moment.
func (s *Session) extendTrustLocked(until time.Time) {
	if until.After(s.live.trust.until) || s.live.trust.until.IsZero() {
		s.live.trust.until = until
	}
}

// shortenTrustLocked takes trust back: the server may end the session earlier than was thought.
func (s *Session) shortenTrustLocked(until time.Time) {
	if until.Before(s.live.trust.until) {
		s.live.trust.until = until
		s.wakeKeeper()
	}
}

// isTrustedLocked reports whether a hold may stand now. Without a known timeout the
// connection has to do.
func (s *Session) isTrustedLocked() bool {
	if s.live.timeout == 0 {
		return s.link.isConnected && s.conn.State() == zk.StateHasSession
	}
	return s.clock.now().Before(s.live.trust.until)
}
