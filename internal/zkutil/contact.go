package zkutil

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// contact records what one connection has sent and which answers have come. That tells
// when the server may have received nothing from us: see gaps.
type contact struct {
	now     func() time.Time
	holding *atomic.Bool  // something is held in the session
	writing chan struct{} // capacity 1: one frame at a time, so that inFlight has the order on the line

	mu       sync.Mutex // protects what is below
	timeout  time.Duration
	inFlight []sentFrame
	sent     time.Time // when the latest frame was sent
	answered time.Time // when the latest frame was sent that has been answered
	written  time.Time // when the latest write was answered
	late     time.Time // when the latest write was answered late; zero if the latest was not late
	moved    time.Time // when bytes of an answer came last
	gaps     gaps
	syncs    chan struct{} // closed and replaced with each sync that is sent
}

// sentFrame is a request without an answer yet.
type sentFrame struct {
	xid, op int32
	at      time.Time // shortly before it was sent
}

// isProof reports whether a positive answer says that the quorum has committed something.
func (f sentFrame) isProof() bool {
	switch f.op {
	case proto.OpCreate, proto.OpCreate2, proto.OpCreateContainer, proto.OpCreateTTL, proto.OpDelete, proto.OpSetData, proto.OpSetACL, proto.OpMulti:
		return true
	default:
		return false
	}
}

// isWrite reports whether the quorum has to agree before the server can answer.
func (f sentFrame) isWrite() bool {
	switch f.op {
	case proto.OpGetData, proto.OpGetACL, proto.OpExists, proto.OpGetChildren, proto.OpGetChildren2, proto.OpPing,
		proto.OpSetWatches, proto.OpSetWatches2, proto.OpAddWatch, proto.OpCheckWatches, proto.OpRemoveWatches:
		return false
	default:
		return true
	}
}

func newContact(now func() time.Time, holding *atomic.Bool) *contact {
	return &contact{now: now, holding: holding, writing: make(chan struct{}, 1), syncs: make(chan struct{})}
}

// open begins the record: a handshake that began at began has been answered. The leader
// itself has heard of the session in it.
func (c *contact) open(began time.Time, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timeout, c.sent, c.answered = timeout, began, began
	c.checkLocked(c.sent)
}

// send has write send a request.
func (c *contact) send(xid, op int32, write func() error) error {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	c.mu.Lock()
	at := c.now()
	c.checkLocked(c.sent)
	if op != proto.OpAuth { // which is answered out of turn
		c.inFlight = append(c.inFlight, sentFrame{xid, op, at})
	}
	if op == proto.OpSync {
		c.noteSyncLocked()
	}
	c.mu.Unlock()
	err := write()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkLocked(c.sent) // the process may have been stopped before the frame was sent
	c.sent = at
	return err
}

// checkLocked notes a gap if nothing has reached the server since from for longer than T/8.
func (c *contact) checkLocked(from time.Time) {
	if now := c.now(); c.timeout > 0 && now.Sub(from) > c.timeout/gapsPerTimeout {
		c.gaps.add(gap{from: from, until: now}, c.timeout)
	}
}

// receive notes an answer, and returns the request that it answers. Answers come in the order
// of the requests.
func (c *contact) receive(xid int32) (request sentFrame, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkLocked(c.sent)
	i := slices.IndexFunc(c.inFlight, func(f sentFrame) bool { return f.xid == xid })
	if i < 0 {
		return sentFrame{}, false
	}
	request = c.inFlight[i]
	// What waits behind a write comes as late as the quorum is slow. Anything else that
	// comes late may have stood still on its way to the server.
	waited := slices.ContainsFunc(c.inFlight[:i+1], sentFrame.isWrite) || c.written.After(request.at)
	switch {
	case !waited:
		c.checkLocked(c.answered)
	case request.isWrite():
		c.judgeWriteLocked(request)
	}
	c.inFlight = slices.Delete(c.inFlight, 0, i+1)
	c.answered = request.at
	if request.isWrite() {
		c.written = c.now()
	}
	return request, true
}

// judgeWriteLocked tells a line that stood still from a quorum that is slow, when a write is
// answered late. What a line has held up comes all at once; if a write that was sent after that
// is late again, it is the quorum. A holder takes every late answer for the quorum's, because a gap could
// cost it the lease, and because it does not sit out a silence: see Session.isHungLocked. What
// was late because the process was stopped says nothing of the quorum.
func (c *contact) judgeWriteLocked(w sentFrame) {
	now := c.now()
	isLate := now.Sub(w.at) > c.timeout/gapsPerTimeout && !c.gaps.isStoppedSince(w.at)
	switch {
	case isLate && !c.late.IsZero() && !w.at.Before(c.late):
		c.gaps.dropLate()
	case now.Sub(c.answered) > c.timeout/gapsPerTimeout && !c.holding.Load() && c.timeout > 0:
		c.gaps.add(gap{from: c.answered, until: now, isLate: true}, c.timeout)
	}
	if c.late = now; !isLate {
		c.late = time.Time{}
	}
}

// move notes that bytes of an answer have come.
func (c *contact) move() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = c.now()
}

// lastWritten is when a write was answered last.
func (c *contact) lastWritten() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written
}

// lastMoved is when bytes of an answer came last.
func (c *contact) lastMoved() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moved
}

func (c *contact) lifetime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timeout
}

// awaitsWriteAfter reports whether a write that was sent after a moment has not been answered yet.
func (c *contact) awaitsWriteAfter(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.inFlight, func(f sentFrame) bool { return f.isProof() && f.at.After(t) })
}

// limit is until when a write of this connection proves the session.
func (c *contact) limit(sent time.Time, horizon, timeout time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkLocked(c.sent)
	return c.gaps.limit(sent, horizon, timeout)
}
