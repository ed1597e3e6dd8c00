package core

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Ledger records the evidence for a live session, which consists of the timeouts granted by servers, the writes
// committed by the quorum, and the requests still unanswered. [Ledger.Until] is the result, and [Ledger.Decide] says
// which actions are due.
//
// A Ledger has no lock and no clock. The owner calls every method under one lock, with times of one [Clock].
type Ledger struct {
	isBound        bool          // the session ends with its connection
	timeout        time.Duration // granted in the latest handshake, before that asked for
	leastTimeout   time.Duration // the least ever granted to the session; 0 while unknown
	longestTimeout time.Duration // the longest ever granted to the session; 0 while unknown
	hasConnected   bool
	inUseSince     time.Time // when the current use began: something is held, awaited or asked for
	heldSince      time.Time // when the current or latest period of holding began
	jitter         float64   // from 0 to 1, of the next audit

	record // of the present session
}

// record is the evidence for one session.
type record struct {
	until            time.Time     // the session is alive until then
	proofSentAt      time.Time     // when the latest committed write was sent
	proofCameAt      time.Time     // when the answer to the latest proof arrived
	answeredAt       time.Time     // when a request was last answered
	beatsSentAt      []time.Time   // when the heartbeats in flight were sent
	lastBeatAt       time.Time     // when the latest heartbeat was sent; zero if a plain one is needed
	lastAuditAt      time.Time     // when watches were last checked at the leader
	lastReadAt       time.Time     // when watches were last read at the client's server
	readsSentAt      time.Time     // when the reads in flight were sent; zero: none
	isReadingInTurns bool          // more watches than are read at a time
	leftServerAt     time.Time     // when the client last left a silent server
	commitTook       time.Duration // how long commits took recently
	lastTook         time.Duration // how long the latest answer to a write took
}

// NewLedger returns the ledger of a session yet to be created. timeout is the timeout asked for.
// jitter, from 0 to 1, delays the first audit.
func NewLedger(timeout time.Duration, jitter float64) Ledger {
	return Ledger{timeout: timeout, jitter: jitter}
}

// Timeout returns the session timeout of the latest handshake; before the first, the timeout asked for.
func (l *Ledger) Timeout() time.Duration { return l.timeout }

// Lifetime returns the session timeout T on which all trust is based. It is the least that any server ever granted to
// the session. The leader does not always use the timeout of the latest handshake:
//
//   - A new leader uses the timeout of the session's creation (ZKDatabase.sessionsWithTimeouts).
//   - A follower that the client left reports the session once more, with the timeout that this follower granted
//     (LearnerSessionTracker.snapshot).
//   - A server may execute a handshake whose answer is lost, also after another server answered a later handshake.
//
// Each of them moves the end of the session to T or more from then on, perhaps to an earlier time than before.
func (l *Ledger) Lifetime() time.Duration {
	if l.leastTimeout > 0 {
		return l.leastTimeout
	}
	return l.timeout
}

// LongestLifetime returns the longest time for which any server may keep the session after the latest request.
func (l *Ledger) LongestLifetime() time.Duration { return max(l.timeout, l.longestTimeout) }

// Period returns the time between two heartbeats.
func (l *Ledger) Period() time.Duration {
	if !l.hasConnected { // only asked for, and perhaps less than any server grants
		return max(l.timeout/BeatsPerTimeout, time.Second)
	}
	return l.Lifetime() / BeatsPerTimeout
}

// Until returns until when the session is proven alive, the zero Time before the first proof.
func (l *Ledger) Until() time.Time { return l.until }

// ProofSentAt returns when the latest proof of the present session was sent, the zero Time before the first.
func (l *Ledger) ProofSentAt() time.Time { return l.proofSentAt }

// Stands reports whether the session is proven alive at a moment.
func (l *Ledger) Stands(now time.Time) bool { return now.Before(l.until) }

// IsThin reports whether a new hold needs another proof, because the latest proof arrived more than T/6 ago and ends
// within T/3: with a slow quorum, the hold might end before the next proof.
func (l *Ledger) IsThin(now time.Time) bool {
	return now.Sub(l.proofCameAt) > l.Period() && l.until.Sub(now) < l.Lifetime()/3
}

// OnGranted records the session timeout that a server granted to the session, in a handshake that began at
// beganAt. OnGranted reports whether trust now ends earlier.
func (l *Ledger) OnGranted(granted time.Duration, beganAt time.Time) (isShortened bool) {
	l.leastTimeout, l.longestTimeout = min(l.leastTimeout, granted), max(l.longestTimeout, granted)
	until := beganAt.Add(l.horizon())
	if isShortened = until.Before(l.until); isShortened {
		l.until = until
	}
	return isShortened
}

// OnHandshake records a completed handshake, which made a session or, after OnGranted, resumed the session.
func (l *Ledger) OnHandshake(granted time.Duration, isNewSession bool) {
	if l.timeout = granted; isNewSession {
		l.leastTimeout, l.longestTimeout = granted, granted
	}
}

// SetBound records whether the session ends with its connection, because the servers resume none (see
// wire.Wire.IsBound).
func (l *Ledger) SetBound(isBound bool) { l.isBound = isBound }

// IsBound reports whether the session ends with its connection.
func (l *Ledger) IsBound() bool { return l.isBound }

// OnNewSession begins the record of another session. The proofs of the previous session prove nothing of this one.
func (l *Ledger) OnNewSession(now time.Time) { l.record = record{lastAuditAt: now, lastReadAt: now} }

// OnConnected records that the session is connected.
func (l *Ledger) OnConnected() { l.hasConnected = true }

// OnDisconnected records the end of a connection. No request in flight will be answered. An overdue heartbeat is sent
// on the next connection.
func (l *Ledger) OnDisconnected() {
	l.beatsSentAt, l.lastBeatAt, l.readsSentAt = nil, time.Time{}, time.Time{}
}

// OnUse records that something is held, awaited or asked for, after a time without use.
func (l *Ledger) OnUse(now time.Time) { l.inUseSince = now }

// OnFirstHold records a hold granted while the session had no other. Holds too close together for an audit or a
// read in between count as one.
func (l *Ledger) OnFirstHold(now time.Time) {
	if !l.heldSince.After(zkutil.Latest(l.lastAuditAt, l.lastReadAt)) {
		l.heldSince = now
	}
}

// Line is the connection on which a write was sent, which knows when nothing was sent.
type Line interface {
	// ProofLimit returns until when a write sent at sentAt proves the session, horizon after sentAt at the
	// latest.
	ProofLimit(sentAt time.Time, horizon, timeout time.Duration) time.Time
}

// Write is an answered write of the present session.
type Write struct {
	SentAt, CameAt time.Time
	IsCommitted    bool // otherwise refused, which proves nothing
	Line           Line
}

// OnWriteAnswered records the answer to a write. It reports whether the write proves the session, and was sent
// later than every earlier proof.
func (l *Ledger) OnWriteAnswered(w Write) (isProof bool) {
	l.beatsSentAt = slices.DeleteFunc(l.beatsSentAt, func(sentAt time.Time) bool { return !sentAt.After(w.SentAt) }) // answers arrive in order
	l.lastTook = w.CameAt.Sub(w.SentAt)
	l.commitTook = max(l.lastTook, l.commitTook/2)
	if !w.IsCommitted || !w.SentAt.After(l.proofSentAt) {
		return false
	}
	l.proofSentAt, l.proofCameAt = w.SentAt, w.CameAt
	if until := w.Line.ProofLimit(w.SentAt, l.horizon(), l.Lifetime()); until.After(l.until) || l.until.IsZero() {
		l.until = until
	}
	return true
}

// horizon returns how long a committed write proves the session, counted from the time of sending.
//
// A follower reports the active sessions to the leader every half tick: every T/4 or more often, because two ticks are
// the shortest timeout. The leader lets a session live for T from each report that lists it, however long before the
// report the session's last request was. A report lists a session that sent anything since the previous report. The wire
// pings every T/10, and more than T/8 without a request is a gap. So each report lists the session if reports are more
// than T/8 apart; otherwise, for T/8 at most, several in a row may lack it. In both cases the last report that lists the
// session left at most T/4 before the follower could lose its leader. The write was sent before that moment, because it
// was committed. So the session lives until 3T/4 after the write, at least. 2T/3 leaves a ninth of that for clocks
// running at different rates. Gaps shorten the horizon after more than T/8 without a request, as in a pause of the
// process. derivation.md has the details.
func (l *Ledger) horizon() time.Duration { return Horizon(l.Lifetime()) }

// OnAnswer records an answer to a request. Answers arrive in order, so any answer counts, even while a heartbeat still
// waits behind other requests.
func (l *Ledger) OnAnswer(now time.Time) { l.answeredAt = now }

// OnBeatSent records a heartbeat in flight.
func (l *Ledger) OnBeatSent(now time.Time) {
	l.beatsSentAt, l.lastBeatAt = append(l.beatsSentAt, now), now
}

// OnBeatEnded records that the heartbeat sent at sentAt is no longer in flight. If the heartbeat was refused, a
// plain heartbeat, on another znode, may prove the session.
func (l *Ledger) OnBeatEnded(sentAt time.Time, isRefused bool) {
	l.beatsSentAt = slices.DeleteFunc(l.beatsSentAt, func(sent time.Time) bool { return sent.Equal(sentAt) })
	if isRefused {
		l.lastBeatAt = time.Time{}
	}
}

// NeedsPlainBeat reports whether the next heartbeat has to check only a znode of this session.
func (l *Ledger) NeedsPlainBeat() bool { return l.lastBeatAt.IsZero() }

// OnAudit records the start of an audit of watches at the leader. jitter, from 0 to 1, delays the next audit.
func (l *Ledger) OnAudit(now time.Time, jitter float64) { l.lastAuditAt, l.jitter = now, jitter }

// OnAuditRefused records that an audit has to be repeated, because a znode was refused and the rest was not
// checked.
func (l *Ledger) OnAuditRefused() { l.lastAuditAt = time.Time{} }

// OnLook records a check of watches at the client's server, in turns if the watches are too many for a single
// batch of reads.
func (l *Ledger) OnLook(now time.Time, isInTurns bool) {
	l.lastReadAt, l.isReadingInTurns = now, isInTurns
}

// OnReadsSent records the reads of a check as in flight.
func (l *Ledger) OnReadsSent(now time.Time) { l.readsSentAt = now }

// OnReadsEnded records that the reads sent at sentAt are no longer in flight.
func (l *Ledger) OnReadsEnded(sentAt time.Time) {
	if l.readsSentAt.Equal(sentAt) {
		l.readsSentAt = time.Time{}
	}
}

// OnServerLeft records that the client leaves a silent server. Without holds only reads were unanswered, which
// says nothing about the quorum.
func (l *Ledger) OnServerLeft(now time.Time, isHolding bool) {
	l.readsSentAt = time.Time{}
	if isHolding {
		l.leftServerAt = now
	}
}
