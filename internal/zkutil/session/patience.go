package session

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// When a leader hangs, the other servers refuse clients until they have elected a new one. By
// then a hold has T/3 of trust left, so we neither wait long for the silent server again nor
// pause between rounds.

// shortestPause protects servers that refuse us from clients with a short session timeout.
const shortestPause = 250 * time.Millisecond

// maxPatienceFactor bounds the time for a handshake, as a multiple of T/6: 4T.
const maxPatienceFactor = 4 * zkutil.BeatsPerTimeout

// handshakePatience is how long a dial or a handshake may take. While a hold can be saved that is T/6,
// so that another server gets its chance. Else it doubles with each handshake that took too long,
// because a slow ensemble could otherwise never be reached.
func (s *Session) handshakePatience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	patience := s.live.period()
	if s.hasHoldToSaveLocked() || s.wire == nil {
		if s.live.leastTimeout > 0 { // trust could otherwise end too late after a lost answer: see onLostHandshake
			patience = min(patience, s.live.leastTimeout/zkutil.BeatsPerTimeout)
		}
		return patience
	}
	return patience * time.Duration(min(1<<min(s.wire.SlowHandshakes(), 16), maxPatienceFactor))
}

// hasHoldToSave reports whether there is a hold that outlives a reconnect in time.
func (s *Session) hasHoldToSave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasHoldToSaveLocked()
}

func (s *Session) hasHoldToSaveLocked() bool { return len(s.holds) > 0 && s.isTrustedLocked() }

// roundPause is the pause between two rounds of attempts at all servers while a hold can be saved, if
// it is shorter than zk.Conn's of one second; else 0. In its own pause zk.Conn fails the requests that
// it could not send. Without that pause they stay queued, for T/2 at most: longer there is no trust.
func (s *Session) roundPause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := max(s.live.period()/wire.HurryDivisor, shortestPause)
	if s.live.timeout == 0 || !s.hasHoldToSaveLocked() || pause >= time.Second {
		return 0
	}
	return pause
}
