package zkutil

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
)

// In parts of the session timeout T.
const (
	beatsPerTimeout = 6               // a heartbeat every T/6, and as long for its answer
	pingsPerTimeout = 8               // a ping every T/8
	defaultPeriod   = 5 * time.Second // between heartbeats while T is unknown
)

// trust is what is known about the life of one session. Guarded by Session.mu.
type trust struct {
	proven   time.Time // when the latest committed write of ours was sent
	until    time.Time // the session is alive until then
	answered time.Time // when a request of ours was last answered
	beat     time.Time // when the heartbeat in flight was sent; zero: none is
	beaten   time.Time // when the latest heartbeat was sent
	cut      time.Time // when a hanging connection was last closed
	audited  time.Time // when watches were last looked through
}

// period is the time between heartbeats, and how long one may take.
func (s *Session) period() time.Duration {
	switch {
	case s.timeout == 0:
		return defaultPeriod
	case s.epoch == 0: // asked for, and perhaps less than any server grants
		return max(s.timeout/beatsPerTimeout, time.Second)
	default:
		return s.timeout / beatsPerTimeout
	}
}

// patience is period, for callers that don't hold s.mu.
func (s *Session) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.period()
}

// attend notes a reason to keep the session proven (+1) or the end of one (−1).
// Called under s.mu.
func (s *Session) attend(n int) {
	if s.interest == 0 {
		s.wanted = time.Now()
		s.keeperBy(s.wanted.Add(s.period()))
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

// horizon is how long after it was sent a committed write proves the session.
//
// It was committed, so it was sent before any cut. A follower tells the leader every
// half tick which sessions were active: the last such list left at most T/4 before
// (two ticks are the shortest timeout), and ours was active at most T/8 before that,
// for the wire pings. In a list that is due more often than we ping we may be missing,
// but then T/8 + T/8 bounds it all the same. So the leader lets the session live until
// 3T/4 after the write; 2T/3 leaves T/12 for clocks that run apart.
//
// An adopted connection pings every T/3 by itself: out of idleness only T/2 is
// certain, less the same margin.
func (s *Session) horizon() time.Duration {
	if s.wire == nil {
		return s.timeout * 5 / 12
	}
	return s.timeout * 2 / 3
}

// settle takes note of the server's answer to a write sent in session id. Only a committed
// write proves the session.
func (s *Session) settle(sent time.Time, id int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != s.id {
		return
	}
	if !sent.Before(s.trust.beat) {
		s.trust.beat = time.Time{} // answers come in order
	}
	if err != nil || !sent.After(s.trust.proven) {
		return
	}
	s.trust.proven = sent
	if s.timeout > 0 {
		s.trust.until = sent.Add(s.horizon())
	}
	if s.state == Lost && s.connected {
		s.enterState(Reconnected)
	}
}

// trusted reports whether a hold may stand now. Without a known timeout the
// connection has to do. Called under s.mu.
func (s *Session) trusted() bool {
	if s.timeout == 0 {
		return s.connected && s.conn.State() == zk.StateHasSession
	}
	return time.Now().Before(s.trust.until)
}

// keep is the goroutine that watches the clock for the session: it sends the
// heartbeats, closes a socket that does not answer them, and ends holds whose
// trust has run out.
func (s *Session) keep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.kick:
		case <-ctx.Done():
			return
		}
		next, hung := s.tick(time.Now())
		if hung && s.wire != nil {
			s.log(slog.LevelWarn, "heartbeat unanswered: closing the connection")
			line := s.wire.line()
			s.background(func(context.Context) { // which may take its time
				s.wire.fellSilent(line.address)
				_ = line.Close()
			})
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// keeperBy makes the keeper look at the clock at t or before. Called under s.mu.
func (s *Session) keeperBy(t time.Time) {
	if s.wakeAt.IsZero() || t.Before(s.wakeAt) {
		s.wakeKeeper()
	}
}

func (s *Session) wakeKeeper() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// tick does what is due at now. It returns when to look again, zero for "when
// something changes", and whether the connection hangs.
func (s *Session) tick(now time.Time) (next time.Time, hung bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := func(t time.Time) bool {
		if !t.After(now) {
			return true
		}
		if next.IsZero() || t.Before(next) {
			next = t
		}
		return false
	}
	if s.timeout > 0 && len(s.holds) > 0 && due(s.trust.until) {
		for _, hold := range s.holds {
			hold.endLocked(ErrSessionLost)
		}
		if s.state != Lost {
			s.enterState(Lost)
		}
	}
	if s.timeout > 0 && s.state == Suspended && s.epoch > 0 {
		// zk.Conn notices a silent server after 2T/3: T/3 later T is over.
		if due(latest(s.since.Add(s.timeout/3), s.trust.until)) {
			s.enterState(Lost)
		}
	}
	if s.connected && s.interest > 0 {
		if !s.trust.beat.IsZero() {
			hung = due(latest(s.trust.beat, s.trust.answered, s.trust.cut).Add(s.period()))
		} else if beat, audit := due(s.beatAt()), due(s.auditAt()); beat || audit {
			s.startBeat(now, beat, audit)
			due(now.Add(s.period()))
		}
	}
	if hung {
		s.trust.cut = now
		due(now.Add(s.period()))
	}
	s.wakeAt = next
	return next, hung
}

func latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
