package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Guarantee 2 by table: what is done at a moment, for a session timeout T of 24 s on an own
// connection to one of three servers. Heartbeats are due every T/6 = 4 s, audits every T/2 = 12 s.
func TestWhatIsDueWhen(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	proven := trust{proofSentAt: at(0), proofCameAt: at(0.1), until: at(16), lastBeatAt: at(0), lastAuditAt: at(0)}
	beaten := func(change func(*trust)) trust {
		changed := proven
		change(&changed)
		return changed
	}
	for name, test := range map[string]struct {
		trust    trust
		live     func(*liveness)
		facts    facts
		expected plan
	}{
		"idle": {
			proven, func(l *liveness) { l.users = 0 },
			facts{now: at(100)},
			plan{},
		},
		"held, nothing due": {
			proven, nil,
			facts{now: at(1), holds: 1},
			plan{nextAt: at(4)},
		},
		"held, a heartbeat after T/6": {
			proven, nil,
			facts{now: at(4), holds: 1},
			plan{beat: true, nextAt: at(8)},
		},
		"held, heartbeat and audit after T/2": {
			beaten(func(tr *trust) { tr.until, tr.proofSentAt, tr.lastBeatAt = at(24), at(8), at(8) }), nil,
			facts{now: at(12), holds: 1},
			plan{beat: true, audit: true, nextAt: at(16)},
		},
		"held, another heartbeat T/6 after one without an answer": {
			beaten(func(tr *trust) {
				tr.beatsSentAt, tr.lastBeatAt, tr.answeredAt = []time.Time{at(4)}, at(4), at(5)
			}), nil,
			facts{now: at(8), holds: 1},
			plan{beat: true, nextAt: at(9)},
		},
		"held, no answer for T/6: another server": {
			beaten(func(tr *trust) { tr.beatsSentAt, tr.lastBeatAt = []time.Time{at(4)}, at(4) }), nil,
			facts{now: at(8), holds: 1},
			plan{leaveServer: true, nextAt: at(12)},
		},
		"held, no answer for T/6, but bytes have come": {
			beaten(func(tr *trust) { tr.beatsSentAt, tr.lastBeatAt = []time.Time{at(4)}, at(4) }), nil,
			facts{now: at(8), holds: 1, bytesCameAt: at(7)},
			plan{beat: true, nextAt: at(11)},
		},
		"held, no answer for T/6 from the only address: 3T/8": {
			beaten(func(tr *trust) { tr.beatsSentAt, tr.lastBeatAt = []time.Time{at(4)}, at(4) }), nil,
			facts{now: at(8), holds: 1, addresses: 1},
			plan{beat: true, nextAt: at(12)},
		},
		"held, no answer for T/6, but the quorum took T/4": {
			beaten(func(tr *trust) {
				tr.beatsSentAt, tr.lastBeatAt, tr.commitTook = []time.Time{at(4)}, at(4), 6*time.Second
			}), nil,
			facts{now: at(8), holds: 1},
			plan{beat: true, nextAt: at(12)},
		},
		"held, the server before did not answer either: the quorum is slow": {
			beaten(func(tr *trust) {
				tr.beatsSentAt, tr.lastBeatAt, tr.leftServerAt = []time.Time{at(4)}, at(4), at(3)
			}), nil,
			facts{now: at(9), holds: 1},
			plan{beat: true, nextAt: at(12)},
		},
		"held, four heartbeats in flight": {
			beaten(func(tr *trust) {
				tr.beatsSentAt, tr.lastBeatAt, tr.answeredAt = []time.Time{at(1), at(2), at(3), at(4)}, at(4), at(9)
			}), nil,
			facts{now: at(9), holds: 1},
			plan{nextAt: at(13)},
		},
		"held, trust is over after 2T/3": {
			proven, nil,
			facts{now: at(16), holds: 1},
			plan{endHolds: true, enterLost: true},
		},
		"held, trust is over while disconnected, and told already": {
			proven, nil,
			facts{now: at(17), holds: 1, state: Lost},
			plan{endHolds: true},
		},
		"held, disconnected": {
			proven, nil,
			facts{now: at(10), holds: 1, state: Suspended, changedAt: at(9)},
			plan{nextAt: at(16)},
		},
		"disconnected, trust is over, but T is not": {
			proven, nil,
			facts{now: at(16), state: Suspended, changedAt: at(9)},
			plan{nextAt: at(17)},
		},
		"disconnected, T is over": {
			proven, nil,
			facts{now: at(17), state: Suspended, changedAt: at(9)},
			plan{enterLost: true},
		},
		"awaited, a heartbeat in flight is enough": {
			beaten(func(tr *trust) { tr.beatsSentAt, tr.lastBeatAt = []time.Time{at(4)}, at(4) }), nil,
			facts{now: at(20)},
			plan{nextAt: at(24)},
		},
		"awaited, any write in flight is enough": {
			proven, nil,
			facts{now: at(20), isAwaitingWrite: true},
			plan{nextAt: at(24)},
		},
		"awaited, T/6 after a slow write was answered": {
			beaten(func(tr *trust) { tr.lastAuditAt = at(10) }), nil,
			facts{now: at(10), writeAnsweredAt: at(9)},
			plan{nextAt: at(13)},
		},
		"held, T/6 after a write was sent, however late it was answered": {
			proven, nil,
			facts{now: at(4), holds: 1, writeAnsweredAt: at(3)},
			plan{beat: true, nextAt: at(8)},
		},
		"awaited, since a moment ago": {
			trust{},
			func(l *liveness) { l.inUseSince = at(9) },
			facts{now: at(10)},
			plan{nextAt: at(13)},
		},
		"created with less than was granted later": {
			proven, func(l *liveness) { l.createdTimeout = 6 * time.Second },
			facts{now: at(1), holds: 1},
			plan{beat: true, nextAt: at(2)},
		},
		"held, no timeout known": {
			proven, func(l *liveness) { l.timeout = 0 },
			facts{now: at(17), holds: 1},
			plan{beat: true, audit: true, nextAt: at(22)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiveness(24 * time.Second)
			l.isOwn, l.hasConnected, l.users, l.inUseSince, l.trust = true, true, 1, at(-100), test.trust
			if test.live != nil {
				test.live(&l)
			}
			f := test.facts
			if f.state == Suspended && f.changedAt.IsZero() {
				f.state, f.isConnected = Connected, true
			}
			if f.addresses == 0 {
				f.addresses = 3
			}
			require.Equal(t, test.expected, l.decide(f))
		})
	}
}

// What a committed write proves, and what the horizon rests on.
func TestWhatAWriteProves(t *testing.T) {
	const timeout = 24 * time.Second
	sentAt := time.Unix(1_000_000, 0)
	for name, test := range map[string]struct {
		change   func(*liveness)
		expected time.Duration
	}{
		"own":     {func(*liveness) {}, timeout * 2 / 3},
		"adopted": {func(l *liveness) { l.isOwn = false }, timeout * 5 / 12},
		"created with less": {
			func(l *liveness) { l.createdTimeout = timeout / 2 }, timeout / 3,
		},
		"created with more": {
			func(l *liveness) { l.createdTimeout = timeout * 2 }, timeout * 2 / 3,
		},
		"sent before a handshake whose answer was lost": {
			func(l *liveness) {
				l.trust.lostHandshakeAt, l.trust.limitAfterLostHandshake = sentAt, sentAt.Add(timeout/4)
			}, timeout / 4,
		},
		"sent after that": {
			func(l *liveness) {
				l.trust.lostHandshakeAt, l.trust.limitAfterLostHandshake = sentAt.Add(-time.Second), sentAt.Add(timeout/4)
			}, timeout * 2 / 3,
		},
		"after a pause of T/2": {
			func(l *liveness) {
				l.isOwn = false
				l.trust.gaps.Add(wire.Gap{StartAt: sentAt.Add(-timeout * 7 / 12), EndAt: sentAt.Add(-timeout / 12)}, timeout)
			}, timeout / 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiveness(timeout)
			l.isOwn, l.hasConnected = true, true
			test.change(&l)
			require.Equal(t, test.expected, l.proofLimit(wire.SentWrite{At: sentAt}).Sub(sentAt))
		})
	}
}
