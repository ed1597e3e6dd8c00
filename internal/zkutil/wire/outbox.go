package wire

import (
	"math"
	"net"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// outbox holds the engine's own requests that one connection has not written yet. What comes while a
// write goes on leaves together in the next one.
type outbox struct {
	wake chan struct{} // capacity 1

	mu       sync.Mutex // protects what is below
	isClosed bool
	xid      int32 // of the latest request
	frames   []sentFrame
	bytes    []byte
	spare    batch // its buffers are used for the next requests
}

// batch is what an outbox held when it was emptied.
type batch struct {
	frames []sentFrame
	bytes  []byte
}

// maxSpare is the size up to which a buffer is kept for the next requests, and maxSpareFrames the number of
// frames.
const maxSpare, maxSpareFrames = 64 << 10, 1 << 10

// maxRequest is the length of the longest request, which is the size of zk.Conn's buffer. A server ends the
// connection on a request that it finds too long, so that it would be repeated for ever.
const maxRequest = 1536 << 10

func newOutbox() outbox { return outbox{wake: make(chan struct{}, 1), xid: firstXid + 1} }

// add queues requests. It returns those that are too long. ok is false once the outbox is closed.
func (o *outbox) add(requests []*Request) (tooLong []*Request, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isClosed {
		return nil, false
	}
	for _, r := range requests {
		begin := len(o.bytes)
		xid := nextXid(o.xid)
		o.bytes = appendFrame(o.bytes, xid, r)
		if len(o.bytes)-begin > maxRequest {
			o.bytes, tooLong = o.bytes[:begin], append(tooLong, r)
			continue
		}
		o.xid = xid
		o.frames = append(o.frames, sentFrame{xid: xid, op: r.Op, to: r.To})
	}
	return tooLong, true
}

// wakeWriter has the line's writer empty the outbox.
func (o *outbox) wakeWriter() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) isEmpty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.frames) == 0
}

// take empties the outbox, unless it holds more bytes than limit: then it takes nothing, and ok is false.
func (o *outbox) take(limit int) (taken batch, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.bytes) > limit {
		return batch{}, false
	}
	taken = batch{o.frames, o.bytes}
	o.frames, o.bytes, o.spare = o.spare.frames, o.spare.bytes, batch{}
	return taken, true
}

// recycle gives the buffers of a batch back that was written.
func (o *outbox) recycle(written batch) {
	if cap(written.bytes) > maxSpare || cap(written.frames) > maxSpareFrames {
		return
	}
	clear(written.frames) // they refer to receivers
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = batch{written.frames[:0], written.bytes[:0]}
}

// close refuses further requests, and returns those that were not written.
func (o *outbox) close() (unsent []sentFrame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	unsent, o.frames, o.isClosed = o.frames, nil, true
	return unsent
}

// Send sends requests in their order, and in one write. The server executes them in that order. Each gets
// its answer through To, in the same order, and after the events that come before it. Send never
// blocks: see writeAtOnce.
//
// A request that is longer than 1.5 MiB is not sent, and gets zk.ErrShortBuffer at once, as in zk.Conn.
func (l *Line) Send(requests ...*Request) {
	refused, ok := l.out.add(requests)
	err := zk.ErrShortBuffer
	if !ok {
		refused, err = requests, zk.ErrNoServer
	}
	for _, r := range refused {
		r.To.Receive(Answer{Err: err, Refused: -1})
	}
	if ok && !l.writeAtOnce() {
		l.out.wakeWriter()
	}
}

// writeOwn writes the engine's own requests, once zk.Conn has presented its credentials again.
func (l *Line) writeOwn() {
	for ready := l.credentialsDone; ; ready = l.out.wake {
		select {
		case <-ready:
		case <-l.abandonDone:
			return
		case <-l.closeDone:
			return
		}
		if err := l.flushOwn(); err != nil {
			l.failWith(err)
			return
		}
	}
}

// flushOwn writes what is in the outbox. The requests stay there until their turn to be written has come, so
// that Close answers them even if zk.Conn's write before them never returns.
func (l *Line) flushOwn() error {
	l.contact.writing <- struct{}{}
	defer func() { <-l.contact.writing }()
	_, err := l.flushInTurn(math.MaxInt)
	return err
}

// flushInTurn is flushOwn for a caller who has the slot contact.writing, and who may write limit bytes at most. If the
// outbox holds more, even by requests that come during the ping, they stay there, and isFlushed is false.
func (l *Line) flushInTurn(limit int) (isFlushed bool, err error) {
	if l.isAbandoned() {
		return true, nil
	}
	if l.contact.wasQuiet() && !l.out.isEmpty() {
		if err := l.pingInTurn(); err != nil {
			return false, err
		}
	}
	requests, ok := l.out.take(limit)
	if !ok {
		return false, nil
	}
	if len(requests.frames) == 0 {
		l.out.recycle(requests)
		return true, nil
	}
	isRefused, err := l.contact.sendInTurn(requests.frames, func() error { return l.writeBytes(requests.bytes) })
	if isRefused {
		failAll(requests.frames, zk.ErrNoServer)
		return false, net.ErrClosed
	}
	l.out.recycle(requests)
	return true, err
}

// writeBytes writes frames to an open line. A failure closes the line.
func (l *Line) writeBytes(frames []byte) error {
	if l.isAbandoned() {
		return net.ErrClosed
	}
	_, err := l.Conn.Write(frames)
	return err
}

// failOwn gives all requests without an answer up, because the line ends.
func (l *Line) failOwn() {
	failAll(l.out.close(), zk.ErrNoServer)
	failAll(l.contact.giveUp(), zk.ErrConnectionClosed)
}

func failAll(frames []sentFrame, err error) {
	for _, f := range frames {
		if f.to != nil {
			f.to.Receive(Answer{Err: err, SentAt: f.sentAt, Refused: -1})
		}
	}
}

// giveUp refuses further requests, and returns those of the engine's own that have no answer yet. They
// stay in flight, because a late answer may still prove the session.
func (c *contact) giveUp() (unanswered []sentFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isDown = true
	unanswered = slices.Clone(c.inFlight.all())
	for i := range c.inFlight.all() {
		c.inFlight.all()[i].to = nil
	}
	return unanswered
}
