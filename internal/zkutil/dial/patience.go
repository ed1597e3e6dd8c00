package dial

import (
	"errors"
	"maps"
	"net"
	"sync"
	"time"
)

// HurryDivisor divides, while a hold has to be saved, the owner's patience with a server that was silent
// before, and the pause between rounds.
const HurryDivisor = 4

// patience records how quickly servers answer. The limit of the next attempt follows from the record.
type patience struct {
	mu                sync.Mutex           // protects the fields below
	lastServer        string               // of the latest dial
	silentAt          map[string]time.Time // when a server last gave no answer within full patience
	lastHandshakeTook time.Duration        // the latest successful dial and handshake
	slowHandshakes    int                  // in a row that took too long
}

// handshakePatience returns how long a dial or a handshake may take, and whether limit is the owner's full patience.
// While a hold has to be saved, a server that was silent within the last T/3 gets less, unless the previous attempt was
// at the same server, as with a single server. Such a server still gets twice the time of the last successful
// handshake, because the server may answer again.
func (d *Dialer) handshakePatience(server string) (limit time.Duration, isFull bool) {
	limit = d.owner.Patience()
	isSaving := d.owner.IsSaving()
	p := &d.patience
	p.mu.Lock()
	defer p.mu.Unlock()
	isOnly := p.lastServer == "" || p.lastServer == server
	p.lastServer = server
	if isSaving && !isOnly && time.Since(p.silentAt[server]) < 2*limit {
		return min(limit, max(limit/HurryDivisor, 2*p.lastHandshakeTook)), false
	}
	return limit, true
}

// noteTimeout records the silence of a server if err is a timeout. Only a
// server that had full patience counts as silent, because otherwise a slow server would never get
// full patience again.
func (d *Dialer) noteTimeout(server string, hadFullPatience bool, err error) {
	var timeout net.Error
	if hadFullPatience && errors.As(err, &timeout) && timeout.Timeout() {
		d.NoteSilence(server)
		d.patience.mu.Lock()
		d.patience.slowHandshakes++
		d.patience.mu.Unlock()
	}
}

// noteAnswer records the duration of a dial and its handshake.
func (p *patience) noteAnswer(took time.Duration, isExpired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastHandshakeTook = took
	if !isExpired {
		p.slowHandshakes = 0
	}
}

// SlowHandshakes returns the number of consecutive handshakes that took too long.
func (d *Dialer) SlowHandshakes() int {
	d.patience.mu.Lock()
	defer d.patience.mu.Unlock()
	return d.patience.slowHandshakes
}

// NoteSilence records that a server did not answer.
func (d *Dialer) NoteSilence(server string) {
	d.hosts.noteSilence(server)
	memory := 2 * d.owner.Patience()
	p := &d.patience
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silentAt == nil {
		p.silentAt = map[string]time.Time{}
	}
	p.silentAt[server] = time.Now()
	maps.DeleteFunc(p.silentAt, func(_ string, at time.Time) bool { return time.Since(at) > memory })
}
