package wire

import (
	"errors"
	"maps"
	"net"
	"time"
)

// HurryDivisor divides the owner's patience while a hold has to be saved: for a server that was
// silent before, and for the pause between rounds.
const HurryDivisor = 4

// handshakePatience returns how long a dial or a handshake may take, and whether that is all of the
// owner's patience. While a hold has to be saved, a server that was silent within the last T/3 gets
// less, unless it is the only one. It still gets twice the time of the last handshake that
// succeeded, because it may answer again.
func (w *Wire) handshakePatience(address string) (limit time.Duration, isFull bool) {
	limit = w.owner.Patience()
	isSaving := w.owner.IsSaving()
	w.mu.Lock()
	defer w.mu.Unlock()
	isOnly := w.lastAddress == "" || w.lastAddress == address
	w.lastAddress = address
	if isSaving && !isOnly && time.Since(w.silentAt[address]) < 2*limit {
		return min(limit, max(limit/HurryDivisor, 2*w.lastHandshakeTook)), false
	}
	return limit, true
}

// noteTimeout notes that a dial or a handshake has failed, if that was for lack of time. Only a
// server that had full patience counts as silent, because otherwise a slow server would never get
// full patience again.
func (w *Wire) noteTimeout(address string, hadFullPatience bool, err error) {
	var timeout net.Error
	if hadFullPatience && errors.As(err, &timeout) && timeout.Timeout() {
		w.NoteSilence(address)
		w.mu.Lock()
		w.slowHandshakes++
		w.mu.Unlock()
	}
}

// SlowHandshakes returns how many handshakes in a row have taken too long.
func (w *Wire) SlowHandshakes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slowHandshakes
}

// NoteSilence notes that a server did not answer.
func (w *Wire) NoteSilence(address string) {
	memory := 2 * w.owner.Patience()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silentAt == nil {
		w.silentAt = map[string]time.Time{}
	}
	w.silentAt[address] = time.Now()
	maps.DeleteFunc(w.silentAt, func(_ string, at time.Time) bool { return time.Since(at) > memory })
}
