package zkutil

import (
	"context"
	"log/slog"
	"time"
)

// keep is the goroutine that watches the clock for the session: it sends the
// heartbeats, leaves a server that does not answer them, and ends holds whose
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
		now := s.clock.now()
		next, silent := s.tick(now)
		if line := silent; line != nil {
			s.log(slog.LevelWarn, "heartbeat unanswered: trying another server")
			s.background(func(context.Context) { // which may take its time
				s.wire.fellSilent(line.address)
				line.leave()
			})
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(next.Sub(s.clock.now()))
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

// agenda collects what is due at a moment.
type agenda struct {
	now  time.Time
	next time.Time // the earliest of what is not due yet; zero: nothing is
}

// due reports whether t has come, and else remembers it.
func (a *agenda) due(t time.Time) bool {
	if !t.After(a.now) {
		return true
	}
	if a.next.IsZero() || t.Before(a.next) {
		a.next = t
	}
	return false
}

// tick does what is due at now. It returns when to look again, zero for "when
// something changes", and the connection that is to be left because the server does not
// answer, nil if there is none.
func (s *Session) tick(now time.Time) (next time.Time, silent *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &agenda{now: now}
	s.noticePauseLocked(now)
	s.endTrustLocked(a)
	if s.connected && s.interest > 0 {
		if s.isHungLocked(a) {
			s.trust.left = now
			a.due(now.Add(s.periodLocked()))
			if s.wire != nil {
				silent = s.wire.line()
			}
		} else {
			s.beatLocked(a)
		}
	}
	s.wakeAt = a.next
	return a.next, silent
}

// noticePauseLocked finds pauses of the process on an adopted connection, whose requests are
// not seen. Something is sent there every T/3.
func (s *Session) noticePauseLocked(now time.Time) {
	if s.wire == nil && !s.wakeAt.IsZero() && now.Sub(s.wakeAt) > s.lifetimeLocked()/marginsPerTimeout {
		s.trust.gaps.add(gap{from: s.wakeAt.Add(-s.lifetimeLocked() / 3), until: now}, s.lifetimeLocked())
	}
}

// endTrustLocked ends the holds when the time of trust is over, and tells when the session
// has to be taken for lost.
func (s *Session) endTrustLocked(a *agenda) {
	if s.timeout > 0 && len(s.holds) > 0 && a.due(s.trust.until) {
		for _, hold := range s.holds {
			hold.endLocked(ErrSessionLost)
		}
		if s.state != Lost {
			s.enterState(Lost)
		}
	}
	if s.timeout > 0 && s.state == Suspended && s.epoch > 0 {
		// zk.Conn notices a silent server after 2T/3: T/3 later T is over.
		if a.due(latest(s.since.Add(s.timeout/3), s.trust.until)) {
			s.enterState(Lost)
		}
	}
}

// isHungLocked reports whether a holder has to try another server, because this one has left
// a heartbeat without an answer. If the next server greets us and does not answer either, the
// quorum is slow. Where nothing is held there is nothing to save: to leave a server for
// being slow would only lose what it is about to answer.
func (s *Session) isHungLocked(a *agenda) bool {
	if len(s.holds) == 0 || len(s.trust.beats) == 0 || s.trust.left.After(s.trust.provenAt) {
		return false
	}
	var moved time.Time
	if s.wire != nil {
		moved = s.wire.lastMoved()
	}
	return a.due(latest(s.trust.beats[0], s.trust.answered, moved).Add(s.beatPatienceLocked()))
}

// beatLocked sends what is due of heartbeats and audits. A holder does not wait for the answer
// to the last one: commits may take longer than the time between two.
func (s *Session) beatLocked(a *agenda) {
	if !s.mayBeatLocked(a) {
		return
	}
	if beat, audit := a.due(s.beatAt()), a.due(s.auditAt()); beat || audit {
		s.startBeat(a.now, beat, audit)
		a.due(a.now.Add(s.periodLocked()))
	}
}

// mayBeatLocked reports whether the heartbeats and writes in flight leave room for another.
func (s *Session) mayBeatLocked(a *agenda) bool {
	n := len(s.trust.beats)
	switch {
	case len(s.holds) == 0 && (n > 0 || s.wire != nil && s.wire.awaitsWrite()): // any write will do
	case n >= maxBeatsInFlight:
	case n > 0:
		return a.due(s.trust.beats[n-1].Add(s.periodLocked()))
	default:
		return true
	}
	a.due(a.now.Add(s.periodLocked()))
	return false
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
