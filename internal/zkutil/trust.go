package zkutil

import (
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// The times by which trust is kept, in parts of the session timeout T.
const (
	beatsPerTimeout   = 6               // a heartbeat every T/6; one may take as long before a holder leaves the server
	pingsPerTimeout   = 10              // a ping every T/10
	gapsPerTimeout    = 8               // nothing sent for more than T/8 is a gap: see gaps
	reportsPerTimeout = 4               // the servers report to their leader every T/4 at the rarest
	marginsPerTimeout = 12              // T/12 is left for clocks that run apart
	maxBeatsInFlight  = 4               // of a holder, while the quorum is slow
	defaultPeriod     = 5 * time.Second // between heartbeats while T is unknown
)

// trust is what is known about the life of one session, by the session's clock. Guarded by
// Session.mu.
type trust struct {
	proven     time.Time     // when the latest committed write of ours was sent
	provenAt   time.Time     // when its answer came
	until      time.Time     // the session is alive until then
	answered   time.Time     // when a request of ours was last answered
	beats      []time.Time   // when the heartbeats in flight were sent
	beaten     time.Time     // when the latest heartbeat was sent
	left       time.Time     // when a server that did not answer was last left
	audited    time.Time     // when watches were last looked through
	commitTook time.Duration // how long the quorum took lately
	lostAt     time.Time     // when a handshake began whose answer was lost; zero: none since the last that was answered
	ceiling    time.Time     // until when a write before that proves the session at most
	gaps       gaps          // of an adopted connection, which is seen from outside alone
}

// lifetimeLocked is the T of all that is said about trust. A server keeps a session for the
// timeout of its latest handshake, but a new leader takes that of the session's creation
// (ZKDatabase.sessionsWithTimeouts): the lesser counts.
func (s *Session) lifetimeLocked() time.Duration {
	if s.created > 0 {
		return min(s.timeout, s.created)
	}
	return s.timeout
}

// periodLocked is the time between heartbeats.
func (s *Session) periodLocked() time.Duration {
	switch {
	case s.timeout == 0:
		return defaultPeriod
	case s.epoch == 0: // asked for, and perhaps less than any server grants
		return max(s.timeout/beatsPerTimeout, time.Second)
	default:
		return s.lifetimeLocked() / beatsPerTimeout
	}
}

// period is periodLocked for callers that don't hold s.mu.
func (s *Session) period() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.periodLocked()
}

// beatPatienceLocked is how long a holder waits for the answer to a heartbeat before it tries
// another server. While the quorum is slow that would not help. Nor does it help to come back
// to the same server, which ends the old connection, and with it a proof that is on its
// way; but behind a single address there may be several servers.
func (s *Session) beatPatienceLocked() time.Duration {
	patience := s.periodLocked()
	if s.wire != nil && s.wire.servers() == 1 {
		patience = s.lifetimeLocked() * 3 / 8
	}
	return max(patience, min(2*s.trust.commitTook, s.lifetimeLocked()/2))
}

// attend notes a reason to keep the session proven (+1) or the end of one (−1).
// Called under s.mu.
func (s *Session) attend(n int) {
	if s.interest == 0 {
		s.wanted = s.clock.now()
		s.keeperBy(s.wanted.Add(s.periodLocked()))
	}
	s.interest += n
	if s.interest == 0 && s.closed {
		s.announce() // Close of an adopted connection waits for it
	}
}

// attended is attend(+1) for callers that don't hold s.mu; done is the end of it.
func (s *Session) attended() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attend(+1)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.attend(-1)
	}
}

// horizonLocked is how long after it was sent a committed write proves the session.
//
// It was committed, so it was sent before any cut. A follower reports to the leader every
// half tick which sessions were active: the last report left at most T/4 before the cut
// (two ticks are the shortest timeout), and ours was active at most T/8 before that,
// for the wire pings every T/10. We may be missing in a report that is due more often than
// we ping, but then T/8 + T/8 bounds it all the same. So the leader lets the session live
// until 3T/4 after the write; 2T/3 leaves T/12 for clocks that run apart. Where more than
// T/8 passed without a request, as in a pause of the process, gaps shortens that.
//
// An adopted connection pings every T/3 by itself: out of idleness only T/2 is
// certain, less the same margin.
func (s *Session) horizonLocked() time.Duration {
	if s.wire == nil {
		return s.lifetimeLocked() * 5 / 12
	}
	return s.lifetimeLocked() * 2 / 3
}

// noteHoldsLocked tells the wire whether something is held.
func (s *Session) noteHoldsLocked() {
	if s.wire != nil {
		s.wire.holding.Store(len(s.holds) > 0)
	}
}

// sentWrite is a write of ours on its way.
type sentWrite struct {
	at   time.Time // shortly before it was sent
	id   int64     // of its session
	line *line     // of its connection; nil on an adopted connection
}

// recordAnswer takes note of the server's answer to a write. Only a committed write proves
// the session; err is nil for one.
func (s *Session) recordAnswer(w sentWrite, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.id != s.id {
		return
	}
	s.trust.beats = slices.DeleteFunc(s.trust.beats, func(sent time.Time) bool { return !sent.After(w.at) }) // answers come in order
	now := s.clock.now()
	s.trust.commitTook = max(now.Sub(w.at), s.trust.commitTook/2)
	if err != nil || !w.at.After(s.trust.proven) {
		return
	}
	s.trust.proven, s.trust.provenAt = w.at, now
	if s.wire != nil {
		s.wire.stopListening(w.at)
	}
	if s.timeout > 0 {
		s.extendLocked(w)
	}
	if s.state == Lost && s.connected {
		s.enterState(Reconnected)
	}
}

// extendLocked trusts the session for as long as a committed write proves it.
func (s *Session) extendLocked(w sentWrite) {
	until := s.trust.gaps.limit(w.at, s.horizonLocked(), s.lifetimeLocked())
	if w.line != nil {
		until = w.line.contact.limit(w.at, s.horizonLocked(), s.lifetimeLocked())
	}
	if !w.at.After(s.trust.lostAt) {
		until = earliest(until, s.trust.ceiling)
	}
	if until.After(s.trust.until) || s.trust.until.IsZero() {
		s.trust.until = until
	}
}

// trusted reports whether a hold may stand now. Without a known timeout the
// connection has to do. Called under s.mu.
func (s *Session) trusted() bool {
	if s.timeout == 0 {
		return s.connected && s.conn.State() == zk.StateHasSession
	}
	return s.clock.now().Before(s.trust.until)
}

// shortenLocked takes trust back: the server may end the session earlier than was thought.
func (s *Session) shortenLocked(until time.Time) {
	if until.Before(s.trust.until) {
		s.trust.until = until
		s.wakeKeeper()
	}
}
