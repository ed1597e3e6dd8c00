package session

import (
	"math/rand/v2"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// liveness is what is known about the life of the session at the servers, and what it is kept
// alive for. It is guarded by Session.mu, under which all its methods are called.
type liveness struct {
	isOwn          bool          // the connection is, so that its frames are seen
	timeout        time.Duration // granted in the latest handshake, before that asked for; 0 while unknown
	createdTimeout time.Duration // granted in the handshake that made the session; 0 while unknown
	leastTimeout   time.Duration // the least that any server has granted; 0 while unknown
	hasConnected   bool

	trust      trust
	users      int                 // how many holds, waits and requests there are
	inUseSince time.Time           // since when there are any
	heldSince  time.Time           // since when something is or was held
	nodes      map[string]struct{} // znodes of ours, which heartbeats check
	jitter     float64             // at random from 0 to 1, anew for each audit

	wakeAt time.Time     // when the keeper looks next; zero: when it is kicked
	kick   chan struct{} // wakes the keeper; capacity 1
}

// trust is what proves one session, by the session's clock.
type trust struct {
	until                   time.Time     // the session is alive until then
	proofSentAt             time.Time     // when the latest committed write was sent
	proofCameAt             time.Time     // when its answer came
	answeredAt              time.Time     // when a request was last answered
	beatsSentAt             []time.Time   // when the heartbeats in flight were sent
	lastBeatAt              time.Time     // when the latest heartbeat was sent; zero: a plain one is needed
	lastAuditAt             time.Time     // when watches were last looked through at the leader
	lastReadAt              time.Time     // when they were last looked through at our server
	readsSentAt             time.Time     // when the reads in flight for that were sent; zero: there are none
	isReadingInTurns        bool          // there are more than are read at a time
	leftServerAt            time.Time     // when a server that did not answer was last left
	commitTook              time.Duration // how long the quorum took lately
	lostHandshakeAt         time.Time     // when a handshake began whose answer was lost; zero: none since the last that was answered
	limitAfterLostHandshake time.Time     // no write sent before lostHandshakeAt proves the session beyond this
	gaps                    wire.Gaps     // of an adopted connection, which is seen from outside alone
}

func newLiveness(timeout time.Duration) liveness {
	return liveness{timeout: timeout, nodes: map[string]struct{}{}, jitter: rand.Float64(), kick: make(chan struct{}, 1)}
}

// lifetime is the T of all that is said about trust. A server keeps a session for the timeout of
// its latest handshake, but a new leader takes that of the session's creation
// (ZKDatabase.sessionsWithTimeouts): the lesser counts.
func (l *liveness) lifetime() time.Duration {
	if l.createdTimeout > 0 {
		return min(l.timeout, l.createdTimeout)
	}
	return l.timeout
}

// period is the time between two heartbeats.
func (l *liveness) period() time.Duration {
	switch {
	case l.timeout == 0:
		return zkutil.DefaultPeriod
	case !l.hasConnected: // asked for, and perhaps less than any server grants
		return max(l.timeout/zkutil.BeatsPerTimeout, time.Second)
	default:
		return l.lifetime() / zkutil.BeatsPerTimeout
	}
}

// horizon is how long after it was sent a committed write proves the session.
//
// It was committed, so it was sent before any cut. A follower reports to the leader every
// half tick which sessions were active. The last report left at most T/4 before the cut, because
// two ticks are the shortest timeout. The session was active at most T/8 before that report, because
// the wire pings every T/10. Where reports come more often than pings, one report may lack the
// session: then at most T/8 between reports and T/8 without a request add up to the same bound. So
// the leader lets the session live until 3T/4 after the write. 2T/3 leaves T/12 for clocks that differ. wire.Gaps shortens that where more than T/8
// passed without a request, as in a pause of the process.
//
// zk.Conn by itself pings every T/3, so on an adopted connection only T/2 is certain, less the same
// margin.
func (l *liveness) horizon() time.Duration {
	if !l.isOwn {
		return zkutil.AdoptedHorizon(l.lifetime())
	}
	return zkutil.OwnHorizon(l.lifetime())
}

// proofLimit is until when a committed write proves the session.
func (l *liveness) proofLimit(w wire.SentWrite) time.Time {
	until := l.trust.gaps.Limit(w.At, l.horizon(), l.lifetime())
	if w.Line != nil {
		until = w.Line.ProofLimit(w.At, l.horizon(), l.lifetime())
	}
	if !w.At.After(l.trust.lostHandshakeAt) {
		until = zkutil.Earliest(until, l.trust.limitAfterLostHandshake)
	}
	return until
}

// facts are what the session knows at a moment, besides its liveness.
type facts struct {
	now             time.Time
	state           State
	isConnected     bool
	changedAt       time.Time // when isConnected was last changed
	holds           int
	addresses       int       // how many there are; of an own connection, as the rest
	bytesCameAt     time.Time // when bytes of an answer came last
	writeAnsweredAt time.Time // when a write was last answered, with a refusal too
	isAwaitingWrite bool      // a write has not been answered yet
	readSentAt      time.Time // when the oldest request was sent that has no answer; zero: none, or a write is in flight
}

// plan is what has to be done at a moment.
type plan struct {
	endHolds    bool      // trust has run out; decide again after that
	enterLost   bool      // the session has to be taken for lost
	leaveServer bool      // it has left a heartbeat, or reads, without an answer
	beat, audit bool      // which of them is due
	read        bool      // what is watched has to be read
	nextAt      time.Time // when to decide again; zero: when something changes
}

// isDue reports whether t has come, and else has the keeper look again then.
func (p *plan) isDue(now, t time.Time) bool {
	if !t.After(now) {
		return true
	}
	p.lookAt(t)
	return false
}

func (p *plan) lookAt(t time.Time) {
	if p.nextAt.IsZero() || t.Before(p.nextAt) {
		p.nextAt = t
	}
}

// decide says what is due. It changes nothing. The order matters: what has lost its trust is not
// saved any more.
func (l *liveness) decide(f facts) (p plan) {
	if l.timeout > 0 && f.holds > 0 && p.isDue(f.now, l.trust.until) {
		return plan{endHolds: true, enterLost: f.state != Lost}
	}
	if l.timeout > 0 && f.state == Suspended && l.hasConnected {
		p.enterLost = p.isDue(f.now, zkutil.Latest(f.changedAt.Add(zkutil.EarliestEndAfterDisconnect(l.timeout)), l.trust.until))
	}
	if f.isConnected && (l.users > 0 || !l.isOwn) {
		p.lookAt(f.now.Add(l.period())) // on an adopted connection, because of noticePauseLocked; else a grant may come
	}
	if !f.isConnected || l.users == 0 {
		return p
	}
	if l.isHung(f, &p) {
		p.leaveServer = true
		return p
	}
	p.read = l.trust.readsSentAt.IsZero() && p.isDue(f.now, l.nextReadAt())
	if l.mayBeat(f, &p) {
		p.beat = l.needsBeats(f) && p.isDue(f.now, l.nextBeatAt(f))
		p.audit = p.isDue(f.now, l.nextAuditAt(f))
	}
	return p
}

// needsBeats reports whether the session has to be proven all the time. One that waits proves itself at its
// grant. But if it is taken for lost while it is connected, nothing else would tell that it is not.
func (l *liveness) needsBeats(f facts) bool { return f.holds > 0 || f.state == Lost }

// isHung reports whether the client has to try another server, because this one is silent.
func (l *liveness) isHung(f facts, p *plan) bool {
	if f.holds == 0 {
		return l.areReadsHung(f, p)
	}
	return l.areBeatsHung(f, p)
}

// areBeatsHung reports whether the server has left a heartbeat of a holder without an answer. The holder leaves one
// server only: if the next one accepts the handshake and does not answer either, the quorum is slow.
func (l *liveness) areBeatsHung(f facts, p *plan) bool {
	if len(l.trust.beatsSentAt) == 0 || l.trust.leftServerAt.After(l.trust.proofCameAt) {
		return false
	}
	return p.isDue(f.now, zkutil.Latest(l.trust.beatsSentAt[0], l.trust.answeredAt, f.bytesCameAt).Add(l.beatPatience(f)))
}

// areReadsHung reports whether the server has left a read without an answer while nothing is held. A write holds up
// the reads behind it as long as the quorum is slow, and leaving would lose its answer.
func (l *liveness) areReadsHung(f facts, p *plan) bool {
	if f.readSentAt.IsZero() {
		return false
	}
	last := zkutil.Latest(f.readSentAt, l.trust.answeredAt, f.bytesCameAt, f.writeAnsweredAt)
	return p.isDue(f.now, last.Add(zkutil.ReadPatience(l.lifetime())))
}

// beatPatience is how long a holder waits for the answer to a heartbeat before it tries another
// server. While the quorum is slow that would not help. Nor does it help to come back to the same
// server, which ends the old connection, and with it a proof that is on its way.
func (l *liveness) beatPatience(f facts) time.Duration {
	patience := l.period()
	if l.isOwn && f.addresses == 1 {
		patience = zkutil.LonePatience(l.lifetime())
	}
	return max(patience, min(2*l.trust.commitTook, l.lifetime()/2))
}

// mayBeat reports whether the heartbeats and writes in flight leave room for another. A holder
// does not wait for the answer to the last one: commits may take longer than the time between
// two. Where nothing is held any write will do.
func (l *liveness) mayBeat(f facts, p *plan) bool {
	n := len(l.trust.beatsSentAt)
	switch {
	case f.holds == 0 && (n > 0 || f.isAwaitingWrite):
	case n >= zkutil.MaxBeatsInFlight:
	case n > 0:
		return p.isDue(f.now, l.trust.beatsSentAt[n-1].Add(l.period()))
	default:
		return true
	}
	return false
}

// nextBeatAt is when the next heartbeat is due. Where nothing is held a heartbeat that follows a
// slow write would only hold up what comes behind it. A holder whose latest proof is worth less than others, because of
// a gap before it, sends the next one in time.
func (l *liveness) nextBeatAt(f facts) time.Time {
	last := zkutil.Latest(l.trust.proofSentAt, l.trust.lastBeatAt, l.inUseSince)
	usual := last.Add(l.period())
	switch {
	case f.holds == 0:
		return zkutil.Latest(usual, f.writeAnsweredAt.Add(l.period()))
	case l.trust.until.IsZero(), !l.trust.until.Before(l.trust.proofSentAt.Add(l.horizon())):
		return usual
	}
	inTime := zkutil.Earliest(last.Add(l.period()/2), l.trust.until.Add(-l.period()))
	return zkutil.Latest(inTime, last.Add(l.period()/4))
}

// nextAuditAt is when the next audit is due: often while something is held, because it takes the place of a heartbeat
// then, and else rarely, because it is a transaction.
func (l *liveness) nextAuditAt(f facts) time.Time {
	timeout, last := l.period()*zkutil.BeatsPerTimeout, zkutil.Latest(l.trust.lastAuditAt, l.inUseSince)
	rarely := last.Add(timeout*zkutil.TimeoutsPerAudit + time.Duration(l.jitter*zkutil.TimeoutsOfJitter*float64(timeout)))
	if f.holds == 0 {
		return rarely
	}
	return zkutil.Earliest(rarely, zkutil.Latest(last, l.heldSince).Add(timeout/zkutil.AuditsPerTimeout))
}

// nextReadAt is when a session reads again what it watches.
func (l *liveness) nextReadAt() time.Time {
	pause := l.period()
	if !l.trust.isReadingInTurns {
		pause *= zkutil.BeatsPerTimeout
	}
	return zkutil.Latest(l.trust.lastReadAt, l.inUseSince).Add(pause)
}
