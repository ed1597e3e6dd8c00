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

// retainLocked notes a reason to look after the session.
func (s *Session) retainLocked() {
	if s.live.users == 0 {
		s.noteInUse(true)
		s.live.inUseSince = s.clock.now()
		s.wakeKeeperByLocked(s.live.inUseSince.Add(s.live.period()))
	}
	s.live.users++
}

// releaseLocked ends what retainLocked began.
func (s *Session) releaseLocked() {
	if s.live.users--; s.live.users > 0 {
		return
	}
	s.noteInUse(false)
	if s.life.isClosingLocked() {
		s.announceLocked() // Close of an adopted connection waits for it
	}
}

// noteInUse tells the wire whether anything is held, awaited or asked for.
func (s *Session) noteInUse(isInUse bool) {
	if s.wire != nil {
		s.wire.SetInUse(isInUse)
	}
}

// Retain notes a reason to look after the session, until Release is called.
func (s *Session) Retain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retainLocked()
}

// Release ends what Retain began.
func (s *Session) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked()
}

// recordLateProof takes note of a write that was committed on an abandoned connection.
func (s *Session) recordLateProof(w wire.SentWrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordAnswerLocked(w, nil)
}

// recordAnswerLocked takes note of the server's answer to a write. Only a committed write proves
// the session; err is nil for one.
func (s *Session) recordAnswerLocked(w wire.SentWrite, err error) {
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
		s.noticePauseLocked(now) // a proof may be answered before the keeper has looked at the clock
		s.extendTrustLocked(s.live.proofLimit(w))
	}
	if s.state == Lost && s.link.isConnected {
		s.enterStateLocked(Reconnected, nil)
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
