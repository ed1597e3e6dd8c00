package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// keep is the goroutine that watches the clock for the session: it does what liveness.decide says.
func (s *Session) keep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.live.kick:
		case <-ctx.Done():
			return
		}
		nextAt, hung := s.tick(s.clock.now())
		if hung != nil {
			s.Log(slog.LevelWarn, "the server does not answer: trying another one")
			s.Background(func(context.Context) { // which may take its time
				s.wire.NoteSilence(hung.Address)
				hung.Abandon()
			})
		}
		if nextAt.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(nextAt.Sub(s.clock.now()))
		}
	}
}

// tick does what is due at now. It returns when to look again, zero for "when
// something changes", and the connection that is to be left because the server does not
// answer, nil if there is none.
func (s *Session) tick(now time.Time) (nextAt time.Time, hung *wire.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noticePauseLocked(now)
	p := s.live.decide(s.factsLocked(now))
	if p.endHolds {
		s.endHoldsLocked(zkutil.ErrSessionLost)
		if p.enterLost {
			s.enterStateLocked(Lost, errUnproven)
		}
		p = s.live.decide(s.factsLocked(now))
	}
	if p.enterLost {
		s.enterStateLocked(Lost, errUnproven)
	}
	if p.leaveServer {
		hung = s.leaveServerLocked(now)
	}
	if p.beat || p.audit {
		s.startBeatLocked(now, p.beat, p.audit)
	}
	if p.read {
		s.startReadsLocked(now)
	}
	s.live.wakeAt = p.nextAt
	return p.nextAt, hung
}

// leaveServerLocked returns the connection that is to be left, nil if it is adopted. That reads were not answered
// says that the server is silent, and nothing of the quorum.
func (s *Session) leaveServerLocked(now time.Time) (hung *wire.Line) {
	s.live.trust.readsSentAt = time.Time{}
	if len(s.holds) > 0 {
		s.live.trust.leftServerAt = now
	}
	if s.wire == nil {
		return nil
	}
	return s.wire.Line()
}

// factsLocked collects what a decision rests on. It asks the wire only where a heartbeat could be sent,
// so that a wire which hangs during a reconnect can't keep the keeper from ending holds.
func (s *Session) factsLocked(now time.Time) facts {
	f := facts{now: now, state: s.state, isConnected: s.link.isConnected, changedAt: s.link.changedAt, holds: len(s.holds)}
	if s.wire != nil && f.isConnected && s.live.users > 0 {
		f.addresses, f.bytesCameAt = s.wire.Addresses(), s.wire.LastByteAt()
		f.writeAnsweredAt, f.isAwaitingWrite = s.wire.LastWriteAnsweredAt(), s.wire.HasProofInFlight()
		f.readSentAt = s.wire.ReadSentAt()
	}
	return f
}

// noticePauseLocked finds pauses of the process on an adopted connection, whose requests are
// not seen. A pause began T/6 before wakeAt at the earliest, because the keeper looked then, and something was sent T/3
// before that: a ping of zk.Conn's, or a write that was answered.
func (s *Session) noticePauseLocked(now time.Time) {
	wakeAt, lifetime := s.live.wakeAt, s.live.lifetime()
	if s.wire != nil || wakeAt.IsZero() || now.Sub(wakeAt) <= lifetime/zkutil.MarginsPerTimeout {
		return
	}
	startAt := wakeAt.Add(-s.live.period() - lifetime/3)
	if sentAt := s.live.trust.proofSentAt; !sentAt.After(wakeAt) {
		startAt = zkutil.Latest(startAt, sentAt)
	}
	s.live.trust.gaps.Add(wire.Gap{StartAt: startAt, EndAt: now}, lifetime)
}

// wakeKeeperByLocked makes the keeper look at the clock at t or before.
func (s *Session) wakeKeeperByLocked(t time.Time) {
	if s.live.wakeAt.IsZero() || t.Before(s.live.wakeAt) {
		s.wakeKeeper()
	}
}

func (s *Session) wakeKeeper() {
	select {
	case s.live.kick <- struct{}{}:
	default:
	}
}
