package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Guarantee 2 by table, with the actions due at a moment, for a session timeout T of 24 s on a connection to one of
// three servers. While something is held, heartbeats are due every T/6 = 4 s, and audits every T/2 = 12 s. While
// something is only awaited, audits are due every 20 T = 480 s or more. Reads are due every T.
func TestDueActionsByTable(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	proven := record{proofSentAt: at(0), proofCameAt: at(0.1), until: at(16), lastBeatAt: at(0), lastAuditAt: at(0), lastReadAt: at(0)}
	beaten := func(change func(*record)) record {
		changed := proven
		change(&changed)
		return changed
	}
	for name, test := range map[string]struct {
		proofs   record
		live     func(*Ledger)
		facts    Facts
		expected Plan
	}{
		"idle": {
			proven, nil,
			Facts{Now: at(100)},
			Plan{},
		},
		"held, nothing due": {
			proven, nil,
			Facts{Now: at(1), Holds: 1},
			Plan{NextAt: at(4)},
		},
		"held, a heartbeat after T/6": {
			proven, nil,
			Facts{Now: at(4), Holds: 1},
			Plan{Beat: true, NextAt: at(8)},
		},
		"held, a heartbeat after T/12 if the latest write proves less than others": {
			beaten(func(tr *record) { tr.until = at(15) }), nil,
			Facts{Now: at(2), Holds: 1},
			Plan{Beat: true, NextAt: at(6)},
		},
		"held, heartbeat and audit after T/2": {
			beaten(func(tr *record) { tr.until, tr.proofSentAt, tr.lastBeatAt = at(24), at(8), at(8) }), nil,
			Facts{Now: at(12), Holds: 1},
			Plan{Beat: true, Audit: true, NextAt: at(16)},
		},
		"held, another heartbeat T/6 after one without an answer": {
			beaten(func(tr *record) {
				tr.beatsSentAt, tr.lastBeatAt, tr.answeredAt = []time.Time{at(4)}, at(4), at(5)
			}), nil,
			Facts{Now: at(8), Holds: 1},
			Plan{Beat: true, NextAt: at(9)},
		},
		"held, no other heartbeat while one is in flight that takes T/5": {
			beaten(func(tr *record) {
				tr.beatsSentAt, tr.lastBeatAt, tr.commitTook, tr.lastTook = []time.Time{at(4)}, at(4), 5*time.Second, 5*time.Second
			}), nil,
			Facts{Now: at(9), Holds: 1},
			Plan{NextAt: at(10)},
		},
		"held, the heartbeat in flight should have been answered": {
			beaten(func(tr *record) {
				tr.beatsSentAt, tr.lastBeatAt, tr.commitTook, tr.lastTook = []time.Time{at(4)}, at(4), 5*time.Second, 5*time.Second
			}), nil,
			Facts{Now: at(10), Holds: 1},
			Plan{Beat: true, NextAt: at(12)},
		},
		"held, several heartbeats are in flight where one takes T/3": {
			beaten(func(tr *record) {
				tr.beatsSentAt, tr.lastBeatAt, tr.commitTook, tr.lastTook = []time.Time{at(4)}, at(4), 8*time.Second, 8*time.Second
			}), nil,
			Facts{Now: at(8), Holds: 1},
			Plan{Beat: true, NextAt: at(12)},
		},
		"held, no answer for T/6: another server": {
			beaten(func(tr *record) { tr.beatsSentAt, tr.lastBeatAt = []time.Time{at(4)}, at(4) }), nil,
			Facts{Now: at(8), Holds: 1},
			Plan{LeaveServer: true, NextAt: at(12)},
		},
		"held, no answer for T/6, but bytes have come": {
			beaten(func(tr *record) { tr.beatsSentAt, tr.lastBeatAt = []time.Time{at(4)}, at(4) }), nil,
			Facts{Now: at(8), Holds: 1, BytesCameAt: at(7)},
			Plan{Beat: true, NextAt: at(11)},
		},
		"held, no answer for T/6 from the only address: 3T/8": {
			beaten(func(tr *record) { tr.beatsSentAt, tr.lastBeatAt = []time.Time{at(4)}, at(4) }), nil,
			Facts{Now: at(8), Holds: 1, Addresses: 1},
			Plan{Beat: true, NextAt: at(12)},
		},
		"held, no answer for T/6, but the quorum took T/4": {
			beaten(func(tr *record) {
				tr.beatsSentAt, tr.lastBeatAt, tr.commitTook = []time.Time{at(4)}, at(4), 6*time.Second
			}), nil,
			Facts{Now: at(8), Holds: 1},
			Plan{Beat: true, NextAt: at(12)},
		},
		"held, the server before did not answer either: the quorum is slow": {
			beaten(func(tr *record) {
				tr.beatsSentAt, tr.lastBeatAt, tr.leftServerAt = []time.Time{at(4)}, at(4), at(3)
			}), nil,
			Facts{Now: at(9), Holds: 1},
			Plan{Beat: true, NextAt: at(12)},
		},
		"held, no answer to another write for T/6: another server": {
			proven, nil,
			Facts{Now: at(5), Holds: 1, WriteSentAt: at(1)},
			Plan{LeaveServer: true, NextAt: at(9)},
		},
		"held, another write is in flight": {
			proven, nil,
			Facts{Now: at(3), Holds: 1, WriteSentAt: at(1)},
			Plan{NextAt: at(4)},
		},
		"held, the server before has answered late: the quorum is slow": {
			beaten(func(tr *record) {
				tr.beatsSentAt, tr.lastBeatAt, tr.leftServerAt, tr.proofSentAt, tr.proofCameAt = []time.Time{at(4)}, at(4), at(3), at(2), at(7)
			}), nil,
			Facts{Now: at(9), Holds: 1},
			Plan{Beat: true, NextAt: at(12)},
		},
		"held, what is watched is read after T": {
			beaten(func(tr *record) {
				tr.until, tr.proofSentAt, tr.lastBeatAt, tr.lastAuditAt = at(38), at(22), at(22), at(22)
			}), nil,
			Facts{Now: at(24), Holds: 1},
			Plan{Read: true, NextAt: at(26)},
		},
		"held, four heartbeats in flight": {
			beaten(func(tr *record) {
				tr.beatsSentAt, tr.lastBeatAt, tr.answeredAt = []time.Time{at(1), at(2), at(3), at(4)}, at(4), at(9)
			}), nil,
			Facts{Now: at(9), Holds: 1},
			Plan{NextAt: at(13)},
		},
		"held, trust is over after 2T/3": {
			proven, nil,
			Facts{Now: at(16), Holds: 1},
			Plan{EndHolds: true, EnterLost: true},
		},
		"held, trust is over while disconnected, and told already": {
			proven, nil,
			Facts{Now: at(17), Holds: 1, IsLost: true},
			Plan{EndHolds: true},
		},
		"held, disconnected": {
			proven, nil,
			Facts{Now: at(10), Holds: 1, IsSuspended: true, ChangedAt: at(9)},
			Plan{NextAt: at(16)},
		},
		"disconnected, trust is over, but T is not": {
			proven, nil,
			Facts{Now: at(16), IsSuspended: true, ChangedAt: at(9)},
			Plan{NextAt: at(17)},
		},
		"disconnected, T is over": {
			proven, nil,
			Facts{Now: at(17), IsSuspended: true, ChangedAt: at(9)},
			Plan{EnterLost: true},
		},
		"awaited: no heartbeat": {
			beaten(func(tr *record) { tr.lastReadAt = at(20) }), nil,
			Facts{Now: at(40)},
			Plan{NextAt: at(44)},
		},
		"awaited, reads after T": {
			beaten(func(tr *record) { tr.lastReadAt = at(16) }), nil,
			Facts{Now: at(40)},
			Plan{Read: true, NextAt: at(44)},
		},
		"awaited, more reads after T/6": {
			beaten(func(tr *record) { tr.lastReadAt, tr.isReadingInTurns = at(36), true }), nil,
			Facts{Now: at(40)},
			Plan{Read: true, NextAt: at(44)},
		},
		"awaited, no reads beside those in flight": {
			beaten(func(tr *record) { tr.lastReadAt, tr.readsSentAt = at(16), at(35) }), nil,
			Facts{Now: at(40), ReadSentAt: at(35)},
			Plan{NextAt: at(43)},
		},
		"awaited, no answer to reads for T/3: another server": {
			beaten(func(tr *record) { tr.lastReadAt, tr.readsSentAt = at(32), at(32) }), nil,
			Facts{Now: at(40), ReadSentAt: at(32)},
			Plan{LeaveServer: true, NextAt: at(44)},
		},
		"awaited, no answer to reads for T/3, but bytes have come": {
			beaten(func(tr *record) { tr.lastReadAt, tr.readsSentAt = at(32), at(32) }), nil,
			Facts{Now: at(40), ReadSentAt: at(32), BytesCameAt: at(33)},
			Plan{NextAt: at(41)},
		},
		"awaited, no answer to reads for T/3, but an answer to something else": {
			beaten(func(tr *record) { tr.lastReadAt, tr.readsSentAt, tr.answeredAt = at(32), at(32), at(34) }), nil,
			Facts{Now: at(40), ReadSentAt: at(32)},
			Plan{NextAt: at(42)},
		},
		"awaited, no answer to reads that are behind a write": {
			beaten(func(tr *record) { tr.lastReadAt, tr.readsSentAt = at(32), at(32) }), nil,
			Facts{Now: at(40), IsAwaitingWrite: true},
			Plan{NextAt: at(44)},
		},
		"awaited, an audit after 20 T and as much more as chance has it": {
			beaten(func(tr *record) { tr.lastReadAt = at(539) }),
			func(l *Ledger) { l.jitter = 0.5 }, // 2.5 T
			Facts{Now: at(22.5 * 24)},
			Plan{Audit: true, NextAt: at(544)},
		},
		"awaited, no audit before that": {
			beaten(func(tr *record) { tr.lastReadAt = at(539) }),
			func(l *Ledger) { l.jitter = 0.5 },
			Facts{Now: at(22.5*24 - 1)},
			Plan{NextAt: at(540)},
		},
		"awaited, an audit waits for a write in flight": {
			beaten(func(tr *record) { tr.lastReadAt = at(999) }), nil,
			Facts{Now: at(1000), IsAwaitingWrite: true},
			Plan{NextAt: at(1004)},
		},
		"awaited, taken for lost while connected": {
			beaten(func(tr *record) { tr.lastReadAt = at(20) }), nil,
			Facts{Now: at(20), IsLost: true, IsConnected: true},
			Plan{Beat: true, NextAt: at(24)},
		},
		"taken for lost, a heartbeat in flight is enough": {
			beaten(func(tr *record) {
				tr.beatsSentAt, tr.lastBeatAt, tr.lastReadAt = []time.Time{at(4)}, at(4), at(20)
			}), nil,
			Facts{Now: at(20), IsLost: true, IsConnected: true},
			Plan{NextAt: at(24)},
		},
		"taken for lost, any write in flight is enough": {
			beaten(func(tr *record) { tr.lastReadAt = at(20) }), nil,
			Facts{Now: at(20), IsLost: true, IsConnected: true, IsAwaitingWrite: true},
			Plan{NextAt: at(24)},
		},
		"taken for lost, T/6 after a slow write was answered": {
			beaten(func(tr *record) { tr.lastReadAt = at(10) }), nil,
			Facts{Now: at(10), IsLost: true, IsConnected: true, WriteAnsweredAt: at(9)},
			Plan{NextAt: at(13)},
		},
		"held since a moment ago: no audit yet": {
			beaten(func(tr *record) {
				tr.until, tr.proofSentAt, tr.lastAuditAt, tr.lastReadAt = at(116), at(100), at(-50), at(100)
			}),
			func(l *Ledger) { l.heldSince = at(100) },
			Facts{Now: at(101), Holds: 1},
			Plan{NextAt: at(104)},
		},
		"held since a moment ago again and again: an audit after 25 T at the latest": {
			beaten(func(tr *record) {
				tr.until, tr.proofSentAt, tr.lastAuditAt, tr.lastReadAt = at(616), at(600), at(0), at(600)
			}),
			func(l *Ledger) { l.heldSince, l.jitter = at(600), 1 },
			Facts{Now: at(601), Holds: 1},
			Plan{Audit: true, NextAt: at(604)},
		},
		"held, T/6 after a write was sent, however late it was answered": {
			proven, nil,
			Facts{Now: at(4), Holds: 1, WriteAnsweredAt: at(3)},
			Plan{Beat: true, NextAt: at(8)},
		},
		"awaited, since a moment ago": {
			record{},
			func(l *Ledger) { l.inUseSince = at(9) },
			Facts{Now: at(10)},
			Plan{NextAt: at(14)},
		},
		"created with less than was granted later": {
			proven, func(l *Ledger) { l.leastTimeout = 6 * time.Second },
			Facts{Now: at(1), Holds: 1},
			Plan{Beat: true, NextAt: at(2)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(24*time.Second, 0)
			l.hasConnected, l.inUseSince, l.record = true, at(-100), test.proofs
			if test.live != nil {
				test.live(&l)
			}
			f := test.facts
			f.IsInUse = name != "idle"
			if !f.IsLost && !f.IsSuspended {
				f.IsConnected = true
			}
			if f.Addresses == 0 {
				f.Addresses = 3
			}
			require.Equal(t, test.expected, l.Decide(f))
		})
	}
}

// How long a committed write proves the session, for each premise of the horizon.
func TestWhatAWriteProves(t *testing.T) {
	const timeout = 24 * time.Second
	sentAt := time.Unix(1_000_000, 0)
	for name, test := range map[string]struct {
		change   func(*Ledger)
		expected time.Duration
	}{
		"created with as much": {func(*Ledger) {}, timeout * 2 / 3},
		"created with less": {
			func(l *Ledger) { l.OnHandshake(timeout/2, true); l.OnHandshake(timeout, false) }, timeout / 3,
		},
		"created with more": {
			func(l *Ledger) { l.OnHandshake(timeout*2, true); l.OnGranted(timeout, sentAt) }, timeout * 2 / 3,
		},
		"granted less, and then more": {
			func(l *Ledger) {
				l.OnHandshake(timeout, true)
				l.OnGranted(timeout/2, sentAt)
				l.OnGranted(timeout, sentAt)
			}, timeout / 3,
		},
		"less was granted to the session before": {
			func(l *Ledger) { l.OnHandshake(timeout/2, true); l.OnHandshake(timeout, true) }, timeout * 2 / 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(timeout, 0)
			l.hasConnected = true
			test.change(&l)
			require.InDelta(t, test.expected, freshLine{}.ProofLimit(sentAt, l.horizon(), l.Lifetime()).Sub(sentAt), 1)
		})
	}
}

// An owner that always looks between two short holds still audits every T/2, because the next grant makes it look
// again.
func TestLooksBetweenShortHoldsPutOffNoAudit(t *testing.T) {
	const timeout = 24 * time.Second
	start := time.Unix(1_000_000, 0)
	l := NewLedger(timeout, 0)
	l.OnConnected()
	l.OnNewSession(start)
	l.OnUse(start)
	now := start
	for ; l.lastAuditAt.Equal(start); now = now.Add(timeout / 12) {
		require.LessOrEqual(t, now.Sub(start), timeout/2+timeout/12, "no audit")
		l.OnWriteAnswered(Write{SentAt: now, CameAt: now, IsCommitted: true, Line: freshLine{}})
		l.OnFirstHold(now)
		if lookAt := l.LookAfterGrant(); !lookAt.After(now) && l.Decide(Facts{Now: now, IsConnected: true, IsInUse: true, Holds: 1}).Audit {
			l.OnAudit(now, 0)
		}
		between := Facts{Now: now.Add(timeout / 12), IsConnected: true, IsInUse: true, IsAwaitingWrite: true}
		require.False(t, l.Decide(between).Audit)
	}
}
