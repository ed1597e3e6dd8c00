package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Guarantee 2 by table: what is done at a moment, for a session timeout T of 24 s on an own
// connection to one of three servers. While something is held, heartbeats are due every T/6 = 4 s, and audits every
// T/2 = 12 s; while it is awaited, audits every 20 T = 480 s and more. Reads are due every T.
func TestWhatIsDueWhen(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	proven := trust{proofSentAt: at(0), proofCameAt: at(0.1), until: at(16), lastBeatAt: at(0), lastAuditAt: at(0), lastReadAt: at(0)}
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
		"held, a heartbeat after T/12 if the latest write proves less than others": {
			beaten(func(tr *trust) { tr.until = at(15) }), nil,
			facts{now: at(2), holds: 1},
			plan{beat: true, nextAt: at(6)},
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
		"held, what is watched is read after T": {
			beaten(func(tr *trust) {
				tr.until, tr.proofSentAt, tr.lastBeatAt, tr.lastAuditAt = at(38), at(22), at(22), at(22)
			}), nil,
			facts{now: at(24), holds: 1},
			plan{read: true, nextAt: at(26)},
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
		"awaited: no heartbeat": {
			beaten(func(tr *trust) { tr.lastReadAt = at(20) }), nil,
			facts{now: at(40)},
			plan{nextAt: at(44)},
		},
		"awaited, reads after T": {
			beaten(func(tr *trust) { tr.lastReadAt = at(16) }), nil,
			facts{now: at(40)},
			plan{read: true, nextAt: at(44)},
		},
		"awaited, more reads after T/6": {
			beaten(func(tr *trust) { tr.lastReadAt, tr.isReadingInTurns = at(36), true }), nil,
			facts{now: at(40)},
			plan{read: true, nextAt: at(44)},
		},
		"awaited, no reads beside those in flight": {
			beaten(func(tr *trust) { tr.lastReadAt, tr.readsSentAt = at(16), at(35) }), nil,
			facts{now: at(40), readSentAt: at(35)},
			plan{nextAt: at(43)},
		},
		"awaited, no answer to reads for T/3: another server": {
			beaten(func(tr *trust) { tr.lastReadAt, tr.readsSentAt = at(32), at(32) }), nil,
			facts{now: at(40), readSentAt: at(32)},
			plan{leaveServer: true, nextAt: at(44)},
		},
		"awaited, no answer to reads for T/3, but bytes have come": {
			beaten(func(tr *trust) { tr.lastReadAt, tr.readsSentAt = at(32), at(32) }), nil,
			facts{now: at(40), readSentAt: at(32), bytesCameAt: at(33)},
			plan{nextAt: at(41)},
		},
		"awaited, no answer to reads for T/3, but an answer to something else": {
			beaten(func(tr *trust) { tr.lastReadAt, tr.readsSentAt, tr.answeredAt = at(32), at(32), at(34) }), nil,
			facts{now: at(40), readSentAt: at(32)},
			plan{nextAt: at(42)},
		},
		"awaited, no answer to reads that are behind a write": {
			beaten(func(tr *trust) { tr.lastReadAt, tr.readsSentAt = at(32), at(32) }), nil,
			facts{now: at(40), isAwaitingWrite: true},
			plan{nextAt: at(44)},
		},
		"awaited, an audit after 20 T and as much more as chance has it": {
			beaten(func(tr *trust) { tr.lastReadAt = at(539) }),
			func(l *liveness) { l.jitter = 0.5 }, // 2.5 T
			facts{now: at(22.5 * 24)},
			plan{audit: true, nextAt: at(544)},
		},
		"awaited, no audit before that": {
			beaten(func(tr *trust) { tr.lastReadAt = at(539) }),
			func(l *liveness) { l.jitter = 0.5 },
			facts{now: at(22.5*24 - 1)},
			plan{nextAt: at(540)},
		},
		"awaited, an audit waits for a write in flight": {
			beaten(func(tr *trust) { tr.lastReadAt = at(999) }), nil,
			facts{now: at(1000), isAwaitingWrite: true},
			plan{nextAt: at(1004)},
		},
		"awaited, taken for lost while connected": {
			beaten(func(tr *trust) { tr.lastReadAt = at(20) }), nil,
			facts{now: at(20), state: Lost, isConnected: true},
			plan{beat: true, nextAt: at(24)},
		},
		"taken for lost, a heartbeat in flight is enough": {
			beaten(func(tr *trust) {
				tr.beatsSentAt, tr.lastBeatAt, tr.lastReadAt = []time.Time{at(4)}, at(4), at(20)
			}), nil,
			facts{now: at(20), state: Lost, isConnected: true},
			plan{nextAt: at(24)},
		},
		"taken for lost, any write in flight is enough": {
			beaten(func(tr *trust) { tr.lastReadAt = at(20) }), nil,
			facts{now: at(20), state: Lost, isConnected: true, isAwaitingWrite: true},
			plan{nextAt: at(24)},
		},
		"taken for lost, T/6 after a slow write was answered": {
			beaten(func(tr *trust) { tr.lastReadAt = at(10) }), nil,
			facts{now: at(10), state: Lost, isConnected: true, writeAnsweredAt: at(9)},
			plan{nextAt: at(13)},
		},
		"held since a moment ago: no audit yet": {
			beaten(func(tr *trust) {
				tr.until, tr.proofSentAt, tr.lastAuditAt, tr.lastReadAt = at(116), at(100), at(-50), at(100)
			}),
			func(l *liveness) { l.heldSince = at(100) },
			facts{now: at(101), holds: 1},
			plan{nextAt: at(104)},
		},
		"held since a moment ago again and again: an audit after 25 T at the latest": {
			beaten(func(tr *trust) {
				tr.until, tr.proofSentAt, tr.lastAuditAt, tr.lastReadAt = at(616), at(600), at(0), at(600)
			}),
			func(l *liveness) { l.heldSince, l.jitter = at(600), 1 },
			facts{now: at(601), holds: 1},
			plan{audit: true, nextAt: at(604)},
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
			plan{nextAt: at(14)},
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
