package core

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Facts are the session's knowledge at a moment, besides the Ledger.
type Facts struct {
	Now             time.Time
	IsLost          bool      // the session is considered lost
	IsSuspended     bool      // the connection is down, and the session is not considered lost
	IsConnected     bool      // to a server
	ChangedAt       time.Time // when IsConnected last changed
	IsInUse         bool      // anything is held, awaited or asked for
	Holds           int       // number of holds
	Addresses       int       // of servers
	BytesCameAt     time.Time // when bytes of an answer last arrived
	WriteAnsweredAt time.Time // when a write was last answered, even with a refusal
	IsAwaitingWrite bool      // a write has no answer yet
	ReadSentAt      time.Time // when the oldest unanswered request was sent; zero if none, or if a write is in flight
	WriteSentAt     time.Time // when the oldest unanswered write of the session's own was sent; zero if none
	DoubtedAt       time.Time // when the first watched znode was doubted that the leader has not confirmed since; zero if none
}

// Plan is the list of actions due at a moment.
type Plan struct {
	EndHolds    bool      // trust is over; decide again afterwards
	EnterLost   bool      // the session has to be considered lost
	LeaveServer bool      // the server left a write, or reads, without an answer
	Beat, Audit bool      // which of the two is due
	Read        bool      // the watched znodes have to be read
	NextAt      time.Time // when to decide again; zero: when something changes
}

// isDue reports whether t has passed; if not, it schedules the next decision for t.
func (p *Plan) isDue(now, t time.Time) bool {
	if !t.After(now) {
		return true
	}
	p.lookAt(t)
	return false
}

func (p *Plan) lookAt(t time.Time) {
	if p.NextAt.IsZero() || t.Before(p.NextAt) {
		p.NextAt = t
	}
}

// Decide returns the actions due, and changes nothing. The order matters: holds without trust are not saved any
// more.
func (l *Ledger) Decide(f Facts) (p Plan) {
	if f.Holds > 0 && p.isDue(f.Now, l.until) {
		return Plan{EndHolds: true, EnterLost: !f.IsLost}
	}
	if f.IsSuspended && l.hasConnected {
		p.EnterLost = p.isDue(f.Now, zkutil.Latest(f.ChangedAt.Add(EarliestEndAfterDisconnect(l.timeout)), l.until))
	}
	if !f.IsConnected || !f.IsInUse {
		return p
	}
	p.lookAt(f.Now.Add(l.Period())) // a grant may follow
	if l.isSilent(f, &p) {
		p.LeaveServer = true
		return p
	}
	p.Read = l.readsSentAt.IsZero() && p.isDue(f.Now, l.nextReadAt())
	if l.mayBeat(f, &p) {
		p.Beat = l.needsBeats(f) && p.isDue(f.Now, l.nextBeatAt(f))
		p.Audit = p.isDue(f.Now, l.nextAuditAt(f))
	}
	return p
}

// needsBeats reports whether the session has to be proven all the time. A waiting session proves itself at a
// grant. But if a session is considered lost while connected, only a heartbeat can show otherwise.
func (l *Ledger) needsBeats(f Facts) bool { return f.Holds > 0 || f.IsLost }

// isSilent reports whether the server is silent, so that the client has to try another.
//
//	with holds      the oldest write, as a rule a heartbeat, has no answer, and nothing arrived, for T/6; for 3T/8 with one address; for
//	                up to T/2 while commits are slow. Not twice until a write sent later is a proof, and not if
//	                the session would end with its connection.
//	without holds   a read has no answer for T/3, and no write is in flight.
func (l *Ledger) isSilent(f Facts, p *Plan) bool {
	if f.Holds == 0 {
		return l.areReadsUnanswered(f, p)
	}
	return l.areWritesUnanswered(f, p)
}

// areWritesUnanswered reports whether the server left a holder's write unanswered. Heartbeats count from the plan to
// send them, because a stuck connection may not take them. The holder leaves only one server. If the next server accepts
// the handshake and does not answer either, or a late answer arrives on the abandoned connection, the quorum is slow.
func (l *Ledger) areWritesUnanswered(f Facts, p *Plan) bool {
	sentAt := f.WriteSentAt
	if len(l.beatsSentAt) > 0 && (sentAt.IsZero() || l.beatsSentAt[0].Before(sentAt)) {
		sentAt = l.beatsSentAt[0]
	}
	if sentAt.IsZero() || l.leftServerAt.After(l.proofSentAt) || l.isBound {
		return false // a bound session could not be saved elsewhere
	}
	return p.isDue(f.Now, zkutil.Latest(sentAt, l.answeredAt, f.BytesCameAt).Add(l.writePatience(f)))
}

// areReadsUnanswered reports whether the server left a read unanswered while nothing is held. A write holds up the
// reads behind it as long as the quorum is slow, and leaving would lose the answer to the write.
func (l *Ledger) areReadsUnanswered(f Facts, p *Plan) bool {
	if f.ReadSentAt.IsZero() {
		return false
	}
	last := zkutil.Latest(f.ReadSentAt, l.answeredAt, f.BytesCameAt, f.WriteAnsweredAt)
	return p.isDue(f.Now, last.Add(ReadPatience(l.Lifetime())))
}

// writePatience returns how long a holder waits for the answer to a write before trying another server.
// While the quorum is slow, another server would not help. Nor would a reconnect to the same server, which ends
// the old connection, and with it a proof already on the way.
func (l *Ledger) writePatience(f Facts) time.Duration {
	patience := l.Period()
	if f.Addresses == 1 {
		patience = LonePatience(l.Lifetime())
	}
	return max(patience, min(2*l.commitTook, l.Lifetime()/2))
}

// mayBeat reports whether the heartbeats and writes in flight leave room for another heartbeat. A holder does not
// always wait for the answer to the latest heartbeat, because a commit may take longer than a heartbeat period. Without
// holds any write is enough.
func (l *Ledger) mayBeat(f Facts, p *Plan) bool {
	n := len(l.beatsSentAt)
	switch {
	case f.Holds == 0 && (n > 0 || f.IsAwaitingWrite):
	case n >= MaxBeatsInFlight:
	case n > 0:
		return p.isDue(f.Now, zkutil.Latest(l.beatsSentAt[n-1].Add(l.Period()), l.answerDueAt()))
	default:
		return true
	}
	return false
}

// answerDueAt returns when the answer to the oldest heartbeat in flight is expected, zero if no limit applies. A server
// which handles requests one by one does not answer sooner because of another heartbeat. Heartbeats would queue up,
// until every answer is too late to prove anything. While an answer takes less than 3/8 of the horizon, one heartbeat
// at a time is enough, because the next heartbeat, sent at the answer to the previous one, is answered before the
// previous proof ends. A slower quorum needs several heartbeats in flight, and can commit them together.
func (l *Ledger) answerDueAt() time.Time {
	if l.lastTook > l.horizon()*3/8 {
		return time.Time{}
	}
	return zkutil.Latest(l.beatsSentAt[0], l.answeredAt).Add(l.lastTook + l.Period()/4)
}

// nextBeatAt returns when the next heartbeat is due. Without holds, a heartbeat after a slow write would only hold up
// the requests behind it. If a gap shortened a holder's latest proof, the next heartbeat is due early enough to replace
// the proof.
func (l *Ledger) nextBeatAt(f Facts) time.Time {
	last := zkutil.Latest(l.proofSentAt, l.lastBeatAt, l.inUseSince)
	usual := last.Add(l.Period())
	switch {
	case f.Holds == 0:
		return zkutil.Latest(usual, f.WriteAnsweredAt.Add(l.Period()))
	case l.until.IsZero(), !l.until.Before(l.proofSentAt.Add(l.horizon())):
		return usual
	}
	inTime := zkutil.Earliest(last.Add(l.Period()/2), l.until.Add(-l.Period()))
	return zkutil.Latest(inTime, last.Add(l.Period()/4))
}

// LookAfterGrant returns when the owner has to look at the clock after a grant. The latest proof may be as old as 2T/3, and
// a gap may shorten the trust. An audit may be overdue from a time without holds.
func (l *Ledger) LookAfterGrant() time.Time {
	held := Facts{Holds: 1}
	return zkutil.Earliest(zkutil.Earliest(l.until, l.nextBeatAt(held)), l.nextAuditAt(held))
}

// nextAuditAt returns when the next audit is due: often while something is held, because the audit then
// replaces a heartbeat, and otherwise rarely, because an audit is a transaction. A doubt makes it due T/6 to T/2 later, because most
// doubts are over by then, but not within T of the latest audit.
func (l *Ledger) nextAuditAt(f Facts) time.Time {
	timeout, last := l.Period()*BeatsPerTimeout, zkutil.Latest(l.lastAuditAt, l.inUseSince)
	rarely := last.Add(timeout*TimeoutsPerAudit + time.Duration(l.jitter*TimeoutsOfJitter*float64(timeout)))
	if !f.DoubtedAt.IsZero() {
		soon := f.DoubtedAt.Add(l.Period() + time.Duration(2*l.jitter*float64(l.Period())))
		rarely = zkutil.Earliest(rarely, zkutil.Latest(l.lastAuditAt.Add(timeout), soon))
	}
	if f.Holds == 0 {
		return rarely
	}
	return zkutil.Earliest(rarely, zkutil.Latest(last, l.heldSince).Add(timeout/AuditsPerTimeout))
}

// nextReadAt returns when a session re-reads the watched znodes.
func (l *Ledger) nextReadAt() time.Time {
	pause := l.Period()
	if !l.isReadingInTurns {
		pause *= BeatsPerTimeout
	}
	return zkutil.Latest(l.lastReadAt, l.inUseSince).Add(pause)
}
