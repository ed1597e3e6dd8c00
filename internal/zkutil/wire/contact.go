package wire

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// contact is the core.Contact of a line under a lock, with the receivers of the answers.
type contact struct {
	now       func() time.Time
	isHolding *atomic.Bool  // the session holds something
	writing   chan struct{} // a slot for one frame at a time, so that the record has the order of the connection
	frames    []core.Frame  // a buffer of the slot's owner

	mu        sync.Mutex // protects the fields below
	record    core.Contact
	receivers map[int32]Receiver // of the engine's own requests in flight, by xid
	isDown    bool               // giveUp was called
}

// sentFrame is a request and the receiver of the answer. to is nil for a request of zk.Conn's, and once given up.
type sentFrame struct {
	core.Frame
	to Receiver
}

func ownFrame(xid, op int32, to Receiver) sentFrame {
	return sentFrame{core.Frame{XID: xid, Op: op, IsOwn: true}, to}
}

func newContact(now func() time.Time, isHolding *atomic.Bool) *contact {
	return &contact{now: now, isHolding: isHolding, writing: make(chan struct{}, 1), receivers: map[int32]Receiver{}}
}

// sendRequest records a request of zk.Conn's, and calls write to send the request, by sendInTurn.
func (c *contact) sendRequest(xid, op int32, write func(isBehindPing bool) error) error {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	_, err := c.sendInTurn([]sentFrame{{Frame: core.Frame{XID: xid, Op: op}}}, write)
	return err
}

// sendInTurn records requests, and calls write to send the requests, behind a ping if isBehindPing. The caller has
// the slot c.writing. isRefused means that the connection was given up before: then nothing was recorded.
func (c *contact) sendInTurn(requests []sentFrame, write func(isBehindPing bool) error) (isRefused bool, err error) {
	c.mu.Lock()
	if c.isDown && requests[0].IsOwn {
		c.mu.Unlock()
		return true, nil
	}
	c.frames = c.frames[:0]
	for _, r := range requests {
		c.frames = append(c.frames, r.Frame)
		if r.IsOwn {
			c.receivers[r.XID] = r.to
		}
	}
	sentAt := c.now()
	isBehindPing := c.record.OnSend(sentAt, c.isHolding.Load(), c.frames)
	c.mu.Unlock()
	err = write(isBehindPing)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record.OnSent(c.now(), sentAt, c.frames)
	return false, err
}

// noteAnswer records an answer with core.Contact.OnAnswer.
func (c *contact) noteAnswer(xid, code int32) (request sentFrame, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	request.Frame, ok = c.record.OnAnswer(c.now(), c.isHolding.Load(), xid, code)
	if ok && request.IsOwn {
		request.to = c.receivers[xid]
		delete(c.receivers, xid)
	}
	return request, ok
}

// giveUp refuses further requests, and returns the unanswered requests.
func (c *contact) giveUp() (unanswered []sentFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isDown = true
	for _, f := range c.record.OnGivenUp() {
		unanswered = append(unanswered, sentFrame{f, c.receivers[f.XID]})
	}
	clear(c.receivers)
	return unanswered
}

func (c *contact) noteHandshake(h core.Handshake) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record.OnHandshake(c.now(), h)
}

func (c *contact) noteZxid(zxid int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record.OnZxid(zxid)
}

func (c *contact) noteBytes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record.OnBytes(c.now())
}

func (c *contact) isAnswerLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.IsAnswerLost(c.now())
}

func (c *contact) isAnswerDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.IsAnswerDue()
}

func (c *contact) isPingDue(isInUse bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.IsPingDue(c.now(), isInUse, c.isHolding.Load())
}

func (c *contact) savesPings() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.SavesPings(c.isHolding.Load())
}

// lifetime returns the session timeout T, 0 before the handshake.
func (c *contact) lifetime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.Timeout()
}

func (c *contact) hasProofInFlightAfter(after time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.HasProofInFlightAfter(after)
}

func (c *contact) proofLimit(sentAt time.Time, horizon, timeout time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.ProofLimit(c.now(), sentAt, horizon, timeout)
}

func (c *contact) addTo(f *core.Facts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record.AddTo(f)
}
