package core

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Contact records the requests sent on one connection and the answers received. The record shows when the server may
// have received nothing (see [Gap]). [Contact.ProofLimit] derives for how long a committed write proves the session.
//
// A Contact has no lock and no clock. The owner calls every method under one lock, with times of one [Clock]. The
// methods On… are the events of the connection, in their order.
type Contact struct {
	timeout         time.Duration
	inFlight        framesInFlight
	beganAt         time.Time // when the handshake began
	isFresh         bool      // no other frame was answered since a handshake that resumed the session
	isBound         bool      // the session ends with its connection: pings are transactions, and reads extend no session
	sentAt          time.Time // when the latest frame was sent
	writeSentAt     time.Time // when the latest request was sent that isCommitted
	answeredSentAt  time.Time // when the latest answered frame was sent
	writeAnsweredAt time.Time // when the latest write was answered
	lateAnswerAt    time.Time // when the latest write was answered, if late; else zero
	byteAt          time.Time // when the latest bytes of an answer arrived
	zxid            int64     // the highest in an answer to the session
	gaps            Gaps
}

// Frame is a request on a connection.
type Frame struct {
	XID, Op int32
	SentAt  time.Time // shortly before it was sent
	Zxid    int64     // the highest in an answer by then
	IsOwn   bool      // the engine's own request; false: zk.Conn's, or given up
}

// IsProof reports whether a positive answer to an operation means that the quorum committed something.
func IsProof(op int32) bool {
	switch op {
	case proto.OpCreate, proto.OpCreate2, proto.OpCreateContainer, proto.OpCreateTTL, proto.OpDelete, proto.OpSetData, proto.OpSetACL, proto.OpMulti:
		return true
	default:
		return false
	}
}

// IsProof reports whether a positive answer means that the quorum committed something.
func (f Frame) IsProof() bool { return IsProof(f.Op) }

// IsUncommitted reports whether the zxid in the answer to a write shows that no quorum committed the write. An answer
// names the latest transaction that the server executed, the write itself or a later one (FinalRequestProcessor). The
// leader numbers a write after every transaction that a client knew before.
func (f Frame) IsUncommitted(zxid int64) bool { return f.IsProof() && zxid <= f.Zxid }

// isWrite reports whether the server needs the agreement of the quorum before it can answer.
func (f Frame) isWrite() bool {
	switch f.Op {
	case proto.OpGetData, proto.OpGetACL, proto.OpExists, proto.OpGetChildren, proto.OpGetChildren2, proto.OpMultiRead, proto.OpPing,
		proto.OpSetWatches, proto.OpSetWatches2, proto.OpAddWatch, proto.OpCheckWatches, proto.OpRemoveWatches:
		return false
	default:
		return true
	}
}

func (f Frame) isOwnWrite() bool { return f.IsOwn && f.IsProof() }

func isOwn(f Frame) bool { return f.IsOwn }

// isCommitted reports whether the quorum commits a request, or has to agree to it.
func (c *Contact) isCommitted(f Frame) bool { return f.isWrite() || c.isBound && f.Op == proto.OpPing }

// Handshake is an answered handshake.
type Handshake struct {
	BeganAt   time.Time
	Timeout   time.Duration // [Ledger.Lifetime]; 0 if the session expired
	IsResumed bool          // no new session was made
	IsBound   bool          // the session ends with its connection
}

// OnHandshake begins the record. A handshake that resumes a session renews it at the leader alone. The server's next
// report lists the session only if another frame arrived by then. So the time from the start of such a handshake to the
// first answer to another frame is a gap, however short. A handshake that makes a session is a transaction, for which
// the server notes the session (ZooKeeperServer.submitRequestNow).
func (c *Contact) OnHandshake(now time.Time, h Handshake) {
	c.timeout, c.isBound, c.beganAt = h.Timeout, h.IsBound, h.BeganAt
	c.sentAt, c.writeSentAt, c.answeredSentAt = h.BeganAt, h.BeganAt, h.BeganAt
	c.isFresh = h.IsResumed && !h.IsBound
	c.noteGap(now, h.BeganAt)
}

// OnSend records requests that are about to be sent together. isBehindPing means that a ping has to go ahead, in the
// same write. OnSend records the ping as well.
func (c *Contact) OnSend(now time.Time, isHolding bool, frames []Frame) (isBehindPing bool) {
	isBehindPing = c.needsPingAhead(now, isHolding, frames)
	c.noteGap(now, c.reachedAt())
	if isBehindPing {
		c.inFlight.add(Frame{XID: proto.XidPing, Op: proto.OpPing, SentAt: now})
	}
	for _, f := range frames {
		if f.Op != proto.OpAuth { // its answer is out of order
			f.SentAt, f.Zxid = now, c.zxid
			c.inFlight.add(f)
		}
	}
	return isBehindPing
}

// OnSent records that the requests of the OnSend at sentAt were written. The process may be stopped between OnSend and
// OnSent.
func (c *Contact) OnSent(now, sentAt time.Time, frames []Frame) {
	c.noteGap(now, c.reachedAt())
	c.sentAt = sentAt
	if slices.ContainsFunc(frames, c.isCommitted) {
		c.writeSentAt = sentAt
	}
}

// OnAnswer records an answer, and returns the request. Answers arrive in the order of the requests. ok is false for an
// unexpected answer, or if an earlier request of the engine's own has no answer yet.
//
// A server answers an unknown operation out of order, as soon as it reads the request (UnimplementedRequestProcessor).
func (c *Contact) OnAnswer(now time.Time, isHolding bool, xid, code int32) (request Frame, ok bool) {
	c.noteGap(now, c.reachedAt())
	inFlight := c.inFlight.all()
	i := slices.IndexFunc(inFlight, func(f Frame) bool { return f.XID == xid })
	if i < 0 {
		return Frame{}, false
	}
	request = inFlight[i]
	if slices.ContainsFunc(inFlight[:i], isOwn) {
		if ok = code == proto.CodeUnimplemented; ok {
			c.inFlight.remove(i)
		}
		return request, ok
	}
	// A slow quorum delays a write and all later answers. If any other request is answered late, perhaps the request
	// was stuck on the way to the server.
	hasWaitedForQuorum := slices.ContainsFunc(inFlight[:i+1], c.isCommitted) || c.writeAnsweredAt.After(request.SentAt)
	switch {
	case !hasWaitedForQuorum:
		c.noteGap(now, c.answeredSentAt)
	case c.isCommitted(request):
		c.judgeLateWrite(now, isHolding, request)
	}
	c.inFlight.removeFirst(i + 1)
	c.answeredSentAt, c.isFresh = request.SentAt, false
	if request.isWrite() {
		c.writeAnsweredAt = now
	}
	return request, true
}

// OnZxid records the zxid of an answer.
func (c *Contact) OnZxid(zxid int64) { c.zxid = max(c.zxid, zxid) }

// OnBytes records that bytes of an answer arrived.
func (c *Contact) OnBytes(now time.Time) { c.byteAt = now }

// OnGivenUp records that the engine no longer waits for an answer, and returns the unanswered requests. They stay in flight, because a late answer may still prove the session.
func (c *Contact) OnGivenUp() (unanswered []Frame) {
	unanswered = slices.Clone(c.inFlight.all())
	for i := range c.inFlight.all() {
		c.inFlight.all()[i].IsOwn = false
	}
	return unanswered
}

// noteGap notes a gap if nothing reached the server for more than T/8 after startAt, or since the handshake.
func (c *Contact) noteGap(now, startAt time.Time) {
	switch {
	case c.timeout == 0:
	case c.isFresh:
		c.gaps.Add(Gap{StartAt: c.beganAt, EndAt: now, IsHandshake: true}, c.timeout)
	case now.Sub(startAt) > c.timeout/GapsPerTimeout:
		c.gaps.Add(Gap{StartAt: startAt, EndAt: now}, c.timeout)
	}
}

// reachedAt returns when the latest request was sent that extended the session.
func (c *Contact) reachedAt() time.Time {
	if c.isBound {
		return c.writeSentAt
	}
	return c.sentAt
}

// judgeLateWrite decides, when a write is answered late, whether the connection was stuck or the quorum is slow. A
// connection that was stuck then delivers everything at once. If a write sent after the late answer is late again,
// the quorum is slow.
//
// While the session holds something, every late answer is blamed on the quorum. A gap could cost the lease, and
// a holder does not wait for a silent server to answer again, but tries another server. A late answer says
// nothing about the quorum if the process was stopped meanwhile.
func (c *Contact) judgeLateWrite(now time.Time, isHolding bool, w Frame) {
	isLate := now.Sub(w.SentAt) > c.timeout/GapsPerTimeout && !c.gaps.HasStopSince(w.SentAt)
	switch {
	case isLate && !c.lateAnswerAt.IsZero() && !w.SentAt.Before(c.lateAnswerAt):
		c.gaps.DropLateWrites()
	case now.Sub(c.answeredSentAt) > c.timeout/GapsPerTimeout && !isHolding && c.timeout > 0:
		c.gaps.Add(Gap{StartAt: c.answeredSentAt, EndAt: now, IsLateWrite: true}, c.timeout)
	}
	if c.lateAnswerAt = now; !isLate {
		c.lateAnswerAt = time.Time{}
	}
}

// needsPingAhead reports whether a ping needs to go ahead of the requests. A server answers a ping at once, while a
// slow quorum delays the answers to a write and to all requests behind the write.
//
//   - Nothing was sent for T/8. zk.Conn closes a connection if no bytes arrive for 2T/3, and a write may take T/2.
//   - The requests contain the first write since an answer that is T/24 old, or since a handshake that resumed the session. If the
//     connection is stuck, the late answer to the ping shows the gap, which the late answer to the write alone would not (see
//     judgeLateWrite). A holder leaves the server T/6 after the write, so a connection that gets stuck behind the ping is stuck for less
//     than the T/4 between two reports of the server.
//
// Where pings are transactions, the quorum would delay the ping as well.
func (c *Contact) needsPingAhead(now time.Time, isHolding bool, frames []Frame) bool {
	first := frames[0]
	switch {
	case c.timeout == 0 || c.isBound || first.Op == proto.OpPing || first.Op == proto.OpAuth:
		return false
	case first.IsOwn && now.Sub(c.sentAt) > c.timeout/GapsPerTimeout:
		return true
	case !slices.ContainsFunc(frames, Frame.isWrite) || slices.ContainsFunc(c.inFlight.all(), Frame.isWrite):
		return false
	}
	return c.isFresh || isHolding && now.Sub(c.answeredSentAt) >= c.timeout/ConfirmsPerTimeout
}

// SavesPings reports whether pings are transactions, and nothing is held.
func (c *Contact) SavesPings(isHolding bool) bool { return c.isBound && !isHolding }

// IsPingDue reports whether to ping, asked every T/10. A session in use always does. An idle session pings if another
// T/10 without a frame would exceed T/4. A bound session that saves pings does after T/3 without a write or a ping.
func (c *Contact) IsPingDue(now time.Time, isInUse, isHolding bool) bool {
	switch {
	case isInUse && !c.SavesPings(isHolding):
		return true
	case c.isBound:
		return now.Sub(c.writeSentAt) >= c.timeout/BoundPingsPerTimeout
	default:
		return now.Add(c.timeout/PingsPerTimeout).Sub(c.sentAt) > c.timeout/IdlesPerTimeout
	}
}

// IsAnswerLost reports, after a ping was answered ahead of an earlier request, whether the answer to a request of the
// engine's own is lost. Answers arrive in order, but no other client relies on the order of pings, so the request gets
// T/3 first.
func (c *Contact) IsAnswerLost(now time.Time) bool {
	inFlight := c.inFlight.all()
	own := slices.IndexFunc(inFlight, isOwn)
	ping := slices.IndexFunc(inFlight, func(f Frame) bool { return f.Op == proto.OpPing })
	return own >= 0 && own < ping && now.Sub(inFlight[own].SentAt) > ReadPatience(c.timeout)
}

// IsAnswerDue reports whether a request has no answer yet.
func (c *Contact) IsAnswerDue() bool { return len(c.inFlight.all()) > 0 }

// HasProofInFlightAfter reports whether a write sent after the given time has no answer yet.
func (c *Contact) HasProofInFlightAfter(after time.Time) bool {
	return slices.ContainsFunc(c.inFlight.all(), func(f Frame) bool { return f.IsProof() && f.SentAt.After(after) })
}

// Timeout returns the T of the handshake, 0 before the handshake.
func (c *Contact) Timeout() time.Duration { return c.timeout }

// ProofLimit returns until when a committed write sent at sentAt proves the session. That is the horizon after sentAt,
// or less because of a gap before the write.
func (c *Contact) ProofLimit(now, sentAt time.Time, horizon, timeout time.Duration) time.Time {
	c.noteGap(now, c.reachedAt())
	return c.gaps.Limit(sentAt, horizon, timeout)
}

// AddTo adds the facts of the connection to the facts for a decision.
func (c *Contact) AddTo(f *Facts) {
	inFlight := c.inFlight.all()
	f.BytesCameAt, f.WriteAnsweredAt, f.IsAwaitingWrite = c.byteAt, c.writeAnsweredAt, c.HasProofInFlightAfter(time.Time{})
	if i := slices.IndexFunc(inFlight, isOwn); i >= 0 && !slices.ContainsFunc(inFlight, Frame.isWrite) {
		f.ReadSentAt = inFlight[i].SentAt
	}
	if i := slices.IndexFunc(inFlight, Frame.isOwnWrite); i >= 0 {
		f.WriteSentAt = inFlight[i].SentAt
	}
}
