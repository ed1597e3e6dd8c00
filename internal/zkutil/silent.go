package zkutil

import (
	"errors"
	"maps"
	"net"
	"time"
)

// When a leader hangs, the other servers refuse clients until they have elected a new one. By
// then a hold has T/3 of trust left, so we neither wait long for the silent server again nor
// pause between rounds.

// hurry is the part of our patience that there is then for a server that has been silent,
// and for a pause.
const hurry = 4

// shortestPause bounds what a short session timeout does to servers that refuse us.
const shortestPause = 250 * time.Millisecond

// mostPatience bounds how long a handshake may take, as a multiple of the first patience:
// four session timeouts.
const mostPatience = 4 * beatsPerTimeout

// handshakePatience is how long a dial or a handshake may take. While a hold can be saved
// there is T/6 for each, so that another server gets its chance. Else it doubles with each
// that took too long, or a slow ensemble could never be reached.
func (s *Session) handshakePatience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	patience := s.periodLocked()
	if s.isSavingLocked() || s.wire == nil {
		if s.least > 0 { // else trust could end too late where the answer is lost: see onLostGreeting
			patience = min(patience, s.least/beatsPerTimeout)
		}
		return patience
	}
	return patience * time.Duration(min(1<<min(s.wire.slowHandshakes(), 16), mostPatience))
}

// isSaving reports whether there is a hold that outlives a reconnect in time.
func (s *Session) isSaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isSavingLocked()
}

func (s *Session) isSavingLocked() bool { return len(s.holds) > 0 && s.trusted() }

// patienceWith is how long a dial or a handshake may take, and whether that is all our
// patience. While there is a hold to save, a server that has let us wait in vain within the
// last T/3 gets less, unless it is the only one; but time enough for one like the last that
// went well, for this one may serve again.
func (w *wire) patienceWith(address string) (limit time.Duration, whole bool) {
	limit = w.patience()
	saving := w.isSaving()
	w.mu.Lock()
	defer w.mu.Unlock()
	only := w.dialled == "" || w.dialled == address
	w.dialled = address
	if saving && !only && time.Since(w.silent[address]) < 2*limit {
		return min(limit, max(limit/hurry, 2*w.took)), false
	}
	return limit, true
}

// gaveUp takes note of why a dial or a handshake has failed. Only a server that had all our
// patience counts as silent: a slow one would be shut out for good.
func (w *wire) gaveUp(address string, whole bool, err error) {
	var slow net.Error
	if whole && errors.As(err, &slow) && slow.Timeout() {
		w.fellSilent(address)
		w.mu.Lock()
		w.slow++
		w.mu.Unlock()
	}
}

// slowHandshakes is how many handshakes in a row have taken too long.
func (w *wire) slowHandshakes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slow
}

// fellSilent takes note of a server that has let us wait in vain.
func (w *wire) fellSilent(address string) {
	forgotten := 2 * w.patience()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent == nil {
		w.silent = map[string]time.Time{}
	}
	w.silent[address] = time.Now()
	maps.DeleteFunc(w.silent, func(_ string, at time.Time) bool { return time.Since(at) > forgotten })
}

// haste is the pause between two rounds of attempts while there are holds to be saved, if
// that is shorter than zk.Conn's; else 0. Without its own pause zk.Conn keeps requests that
// it could not send, for T/2 at most, which is how long there is trust.
func (s *Session) haste() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := max(s.periodLocked()/hurry, shortestPause)
	if s.timeout == 0 || !s.isSavingLocked() || pause >= time.Second {
		return 0
	}
	return pause
}
