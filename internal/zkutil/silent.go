package zkutil

import (
	"errors"
	"maps"
	"net"
	"time"
)

// While an ensemble elects a leader in place of one that hangs, its servers refuse us. A
// hold outlives that if we are at one of them soon after: what is left of its trust, T/3 at
// least when the silent connection is closed, must neither be spent on waiting for the
// silent server once more nor on pauses.

// hurry is the part of our patience that there is then for a server that has been silent,
// and for a pause.
const hurry = 4

// shortestPause bounds what a short session timeout does to servers that refuse us.
const shortestPause = 250 * time.Millisecond

// patienceWith is how long a dial or a handshake may take, and whether that is all our
// patience. A server that has let us wait in vain within the last T/3 gets less, unless it
// is the only one; but time enough for one like the last that went well, for this one may
// serve again.
func (w *wire) patienceWith(address string) (limit time.Duration, whole bool) {
	limit = w.patience()
	w.mu.Lock()
	defer w.mu.Unlock()
	only := w.dialled == "" || w.dialled == address
	w.dialled = address
	if !only && time.Since(w.silent[address]) < 2*limit {
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
	}
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
	pause := max(s.period()/hurry, shortestPause)
	if len(s.holds) == 0 || s.timeout == 0 || !s.trusted() || pause >= time.Second {
		return 0
	}
	return pause
}
