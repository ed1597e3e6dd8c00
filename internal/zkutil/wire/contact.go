package wire

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trust"
)

// contact records the requests sent on a connection and the answers received. The record shows when the server
// may have received nothing: see Gap.
type contact struct {
	now       func() time.Time
	isHolding *atomic.Bool  // the session holds something
	writing   chan struct{} // a slot for one frame at a time, so that inFlight has the order of the connection

	mu              sync.Mutex // protects the fields below
	timeout         time.Duration
	inFlight        framesInFlight
	sentAt          time.Time // when the latest frame was sent
	answeredSentAt  time.Time // when the latest frame that was answered had been sent
	writeAnsweredAt time.Time // when the latest write was answered
	lateAnswerAt    time.Time // when the latest write was answered, if late; else zero
	byteAt          time.Time // when the latest bytes of an answer came
	gaps            trust.Gaps
	isDown          bool      // giveUp was called
	isBound         bool      // see Wire.IsBound
	writeSentAt     time.Time // when the latest request was sent that isCommittedLocked
}

// sentFrame is a request without an answer yet.
type sentFrame struct {
	xid, op int32
	sentAt  time.Time // shortly before it was sent
	to      Receiver  // of the engine's own requests; nil: zk.Conn's, or given up
}

// IsProof reports whether a positive answer to an operation means that the quorum has committed something.
func IsProof(op int32) bool {
	switch op {
	case proto.OpCreate, proto.OpCreate2, proto.OpCreateContainer, proto.OpCreateTTL, proto.OpDelete, proto.OpSetData, proto.OpSetACL, proto.OpMulti:
		return true
	default:
		return false
	}
}

func (f sentFrame) isProof() bool { return IsProof(f.op) }

// isWrite reports whether the server needs the agreement of the quorum before it can answer.
func (f sentFrame) isWrite() bool {
	switch f.op {
	case proto.OpGetData, proto.OpGetACL, proto.OpExists, proto.OpGetChildren, proto.OpGetChildren2, proto.OpMultiRead, proto.OpPing,
		proto.OpSetWatches, proto.OpSetWatches2, proto.OpAddWatch, proto.OpCheckWatches, proto.OpRemoveWatches:
		return false
	default:
		return true
	}
}

func newContact(now func() time.Time, isHolding *atomic.Bool) *contact {
	return &contact{now: now, isHolding: isHolding, writing: make(chan struct{}, 1)}
}

// noteHandshake begins the record at the start of an answered handshake, because a handshake reaches the
// leader.
func (c *contact) noteHandshake(beganAt time.Time, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timeout, c.sentAt, c.answeredSentAt = timeout, beganAt, beganAt
	c.writeSentAt = beganAt
	c.noteGapLocked(c.sentAt)
}

// sendRequest records a request of zk.Conn's, and calls write to send the request.
func (c *contact) sendRequest(xid, op int32, write func() error) error {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	_, err := c.sendInTurn([]sentFrame{{xid: xid, op: op}}, write)
	return err
}

// sendInTurn records requests, and calls write to send the requests. The caller has the slot c.writing.
// isRefused means that the connection was given up before: then nothing was recorded.
func (c *contact) sendInTurn(frames []sentFrame, write func() error) (isRefused bool, err error) {
	c.mu.Lock()
	if c.isDown && frames[0].to != nil {
		c.mu.Unlock()
		return true, nil
	}
	sentAt := c.now()
	c.noteGapLocked(c.reachedAtLocked())
	for _, f := range frames {
		if f.op != proto.OpAuth { // the answer comes out of order
			f.sentAt = sentAt
			c.inFlight.add(f)
		}
	}
	c.mu.Unlock()
	err = write()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteGapLocked(c.reachedAtLocked()) // the process may have been stopped before the frame was sent
	c.sentAt = sentAt
	if slices.ContainsFunc(frames, c.isCommittedLocked) {
		c.writeSentAt = sentAt
	}
	return false, err
}

// noteGapLocked notes a gap if nothing has reached the server since startAt for longer than T/8.
func (c *contact) noteGapLocked(startAt time.Time) {
	if now := c.now(); c.timeout > 0 && now.Sub(startAt) > c.timeout/trust.GapsPerTimeout {
		c.gaps.Add(trust.Gap{StartAt: startAt, EndAt: now}, c.timeout)
	}
}

// noteAnswer notes an answer, and returns the request. Answers come in the order of the requests: ok is false
// for an unexpected answer, or if an earlier request of the engine's own has no answer yet.
//
// A server answers an unknown operation out of order, as soon as the server has read the request
// (UnimplementedRequestProcessor).
func (c *contact) noteAnswer(xid, code int32) (request sentFrame, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteGapLocked(c.reachedAtLocked())
	inFlight := c.inFlight.all()
	i := slices.IndexFunc(inFlight, func(f sentFrame) bool { return f.xid == xid })
	if i < 0 {
		return sentFrame{}, false
	}
	request = inFlight[i]
	if slices.ContainsFunc(inFlight[:i], func(f sentFrame) bool { return f.to != nil }) {
		if ok = code == proto.CodeUnimplemented; ok {
			c.inFlight.remove(i)
		}
		return request, ok
	}
	// A slow quorum delays a write and all later answers. If any other request is answered late, the request
	// may have been stuck on the way to the server.
	hasWaitedForQuorum := slices.ContainsFunc(inFlight[:i+1], c.isCommittedLocked) || c.writeAnsweredAt.After(request.sentAt)
	switch {
	case !hasWaitedForQuorum:
		c.noteGapLocked(c.answeredSentAt)
	case c.isCommittedLocked(request):
		c.judgeLateWriteLocked(request)
	}
	c.inFlight.removeFirst(i + 1)
	c.answeredSentAt = request.sentAt
	if request.isWrite() {
		c.writeAnsweredAt = c.now()
	}
	return request, true
}

// judgeLateWriteLocked decides, when a write is answered late, whether the connection was stuck or the quorum
// is slow. A connection that was stuck then delivers everything at once. If a write sent after the late answer
// is late again, the quorum is slow.
//
// While the session holds something, every late answer is blamed on the quorum. A gap could cost the lease, and
// a holder does not wait for a silent server to answer again, but tries another server. A late answer says
// nothing about the quorum if the process was stopped meanwhile.
func (c *contact) judgeLateWriteLocked(w sentFrame) {
	now := c.now()
	isLate := now.Sub(w.sentAt) > c.timeout/trust.GapsPerTimeout && !c.gaps.HasStopSince(w.sentAt)
	switch {
	case isLate && !c.lateAnswerAt.IsZero() && !w.sentAt.Before(c.lateAnswerAt):
		c.gaps.DropLateWrites()
	case now.Sub(c.answeredSentAt) > c.timeout/trust.GapsPerTimeout && !c.isHolding.Load() && c.timeout > 0:
		c.gaps.Add(trust.Gap{StartAt: c.answeredSentAt, EndAt: now, IsLateWrite: true}, c.timeout)
	}
	if c.lateAnswerAt = now; !isLate {
		c.lateAnswerAt = time.Time{}
	}
}

// noteBytes notes that bytes of an answer have come.
func (c *contact) noteBytes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byteAt = c.now()
}

// lastWriteAnsweredAt returns the time of the latest answer to a write.
func (c *contact) lastWriteAnsweredAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeAnsweredAt
}

// wasQuiet reports whether nothing was sent for so long that a ping has to go ahead of the next request.
// zk.Conn gives a connection up if no bytes come for 2T/3, and a slow quorum may take T/2 to answer a write. Where
// pings are transactions, the quorum would delay the ping as well.
func (c *contact) wasQuiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timeout > 0 && !c.isBound && c.now().Sub(c.sentAt) > c.timeout/trust.GapsPerTimeout
}

// readSentAt returns when the oldest unanswered request of the engine's own was sent. readSentAt returns zero
// without such a request, and while a write is in flight, which a slow quorum may delay.
func (c *contact) readSentAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	inFlight := c.inFlight.all()
	i := slices.IndexFunc(inFlight, func(f sentFrame) bool { return f.to != nil })
	if i < 0 || slices.ContainsFunc(inFlight, sentFrame.isWrite) {
		return time.Time{}
	}
	return inFlight[i].sentAt
}

// isAnswerLost reports, after a ping was answered ahead of an earlier request, whether the answer to a request
// of the engine's own is lost. Answers come in order, but no other client relies on the order of pings, so the
// request gets T/3 first.
func (c *contact) isAnswerLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	inFlight := c.inFlight.all()
	own := slices.IndexFunc(inFlight, func(f sentFrame) bool { return f.to != nil })
	ping := slices.IndexFunc(inFlight, func(f sentFrame) bool { return f.op == proto.OpPing })
	return own >= 0 && own < ping && c.now().Sub(inFlight[own].sentAt) > trust.ReadPatience(c.timeout)
}

// isPingDue reports whether an idle session has to ping now, because another interval without a frame would
// exceed T/4. A bound session that saves pings has to after T/3 without a write or a ping.
func (c *contact) isPingDue(interval, timeout time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isBound {
		return c.now().Sub(c.writeSentAt) >= timeout/trust.BoundPingsPerTimeout
	}
	return c.now().Add(interval).Sub(c.sentAt) > timeout/trust.IdlesPerTimeout
}

// lastByteAt returns when the latest bytes of an answer came.
func (c *contact) lastByteAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byteAt
}

// lifetime returns the session timeout, 0 before the handshake.
func (c *contact) lifetime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timeout
}

// hasProofInFlightAfter reports whether a write sent after the given time has no answer yet.
func (c *contact) hasProofInFlightAfter(after time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.inFlight.all(), func(f sentFrame) bool { return f.isProof() && f.sentAt.After(after) })
}

// proofLimit implements Line.ProofLimit.
func (c *contact) proofLimit(sentAt time.Time, horizon, timeout time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteGapLocked(c.reachedAtLocked())
	return c.gaps.Limit(sentAt, horizon, timeout)
}
