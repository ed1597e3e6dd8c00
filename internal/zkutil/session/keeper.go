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
			s.Log(slog.LevelWarn, "heartbeat unanswered: trying another server")
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
			s.enterStateLocked(Lost)
		}
		p = s.live.decide(s.factsLocked(now))
	}
	if p.enterLost {
		s.enterStateLocked(Lost)
	}
	if p.leaveServer {
		s.live.trust.leftServerAt = now
		if s.wire != nil {
			hung = s.wire.Line()
		}
	}
	if p.beat || p.audit {
		s.startBeatLocked(now, p.beat, p.audit)
	}
	s.live.wakeAt = p.nextAt
	return p.nextAt, hung
}

// factsLocked collects what a decision rests on. It asks the wire only where a heartbeat could be sent,
// so that a wire which hangs during a reconnect can't keep the keeper from ending holds.
func (s *Session) factsLocked(now time.Time) facts {
	f := facts{now: now, state: s.state, isConnected: s.link.isConnected, changedAt: s.link.changedAt, holds: len(s.holds)}
	if s.wire != nil && f.isConnected && s.live.users > 0 {
		f.addresses, f.bytesCameAt = s.wire.Addresses(), s.wire.LastByteAt()
		f.writeAnsweredAt, f.isAwaitingWrite = s.wire.LastWriteAnsweredAt(), s.wire.HasProofInFlight()
	}
	return f
}

// noticePauseLocked finds pauses of the process on an adopted connection, whose requests are
// not seen. Something is sent there every T/3.
func (s *Session) noticePauseLocked(now time.Time) {
	wakeAt, lifetime := s.live.wakeAt, s.live.lifetime()
	if s.wire == nil && !wakeAt.IsZero() && now.Sub(wakeAt) > lifetime/zkutil.MarginsPerTimeout {
		s.live.trust.gaps.Add(wire.Gap{StartAt: wakeAt.Add(-lifetime / 3), EndAt: now}, lifetime)
	}
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
