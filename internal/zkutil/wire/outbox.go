package wire

import (
	"math"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// outbox holds the engine's own unwritten requests. Requests added during a write are sent together in the next
// write.
type outbox struct {
	wake chan struct{} // capacity 1

	mu       sync.Mutex // protects the fields below
	isClosed bool
	xid      int32 // of the latest request
	frames   []sentFrame
	bytes    []byte
	spare    batch // has the buffers for the next requests
}

// batch is the content taken from an outbox.
type batch struct {
	frames []sentFrame
	bytes  []byte
}

// maxSpare is the largest size of a buffer that is kept for the next requests, and maxSpareFrames the largest
// number of frames.
const maxSpare, maxSpareFrames = 64 << 10, 1 << 10

// maxRequest is the length of the longest request, equal to the size of zk.Conn's buffer. A server ends the
// connection after a request that exceeds the server's limit, so the request would be repeated forever.
const maxRequest = 1536 << 10

func newOutbox() outbox { return outbox{wake: make(chan struct{}, 1), xid: firstXid + 1} }

// add queues requests, and returns the requests that are too long. ok is false once the outbox is closed.
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
		o.frames = append(o.frames, ownFrame(xid, r.Op, r.To))
	}
	return tooLong, true
}

// wakeWriter makes the line's writer empty the outbox.
func (o *outbox) wakeWriter() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take empties the outbox. If the outbox holds more bytes than limit, take takes nothing, and ok is false.
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

// recycle returns the buffers of a written batch.
func (o *outbox) recycle(written batch) {
	if cap(written.bytes) > maxSpare || cap(written.frames) > maxSpareFrames {
		return
	}
	clear(written.frames) // frames refer to receivers
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = batch{written.frames[:0], written.bytes[:0]}
}

// close refuses further requests, and returns the unwritten requests.
func (o *outbox) close() (unsent []sentFrame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	unsent, o.frames, o.isClosed = o.frames, nil, true
	return unsent
}

// Send sends requests in their order, and in one write. The server executes the requests in the same order. Each
// request gets an answer through To, in the same order, and after all earlier events. Send never blocks, as
// writeAtOnce explains.
//
// A request longer than 1.5 MiB is not sent, and fails with zk.ErrShortBuffer at once, as in zk.Conn.
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

// writeOwn writes the engine's own requests, after zk.Conn presented its credentials again. zk.Conn presents each when the
// previous one is answered, and waits for a lost answer as long as the server answers pings. So the client leaves a server if
// the credentials take longer than 2T. On ClickHouse Keeper each is a transaction, which a slow quorum may delay for T/2.
func (l *Line) writeOwn() {
	limit := time.NewTimer(2 * l.contact.lifetime())
	defer limit.Stop()
	for ready := l.credentialsDone; ; ready = l.out.wake {
		select {
		case <-ready:
			limit.Stop()
		case <-limit.C:
			l.failWith(errCredentials)
			return
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

// flushOwn writes the content of the outbox. The requests stay in the outbox until they can be written, so that
// Close answers the requests even if an earlier write of zk.Conn never returns.
func (l *Line) flushOwn() error {
	l.contact.writing <- struct{}{}
	defer func() { <-l.contact.writing }()
	_, err := l.flushInTurn(math.MaxInt)
	return err
}

// flushInTurn is flushOwn for a caller who has the slot contact.writing, and who may write limit bytes at most.
// If the outbox holds more, all requests stay in the outbox, and isFlushed is false.
func (l *Line) flushInTurn(limit int) (isFlushed bool, err error) {
	requests, ok := l.out.take(limit)
	if !ok {
		return false, nil
	}
	if len(requests.frames) == 0 {
		l.out.recycle(requests)
		return true, nil
	}
	isRefused, err := l.contact.sendInTurn(requests.frames, func(isBehindPing bool) error {
		return l.writeFrames(requests.bytes, isBehindPing)
	})
	if isRefused {
		failAll(requests.frames, zk.ErrNoServer)
		return false, net.ErrClosed
	}
	l.out.recycle(requests)
	return true, err
}

// writeFrames writes frames to an open line, behind a ping if isBehindPing.
func (l *Line) writeFrames(frames []byte, isBehindPing bool) error {
	if l.isAbandoned() {
		return net.ErrClosed
	}
	if isBehindPing {
		if _, err := l.Conn.Write(pingFrame()); err != nil {
			return err
		}
	}
	_, err := l.Conn.Write(frames)
	return err
}

// failOwn fails all unanswered requests, because the line ends.
func (l *Line) failOwn() {
	failAll(l.out.close(), zk.ErrNoServer)
	failAll(l.contact.giveUp(), zk.ErrConnectionClosed)
}

func failAll(frames []sentFrame, err error) {
	for i, f := range frames {
		if f.to != nil {
			f.to.Receive(Answer{Err: err, SentAt: f.SentAt, Refused: -1, IsBehind: i > 0})
		}
	}
}

// While no request on a line awaits an answer, the sender of a request writes the frame, because waking the
// line's writer takes a tenth of a millisecond on an idle machine. Otherwise the writer writes, and requests
// added during a write leave together.
//
// A write by the sender does not block, because the server read everything sent before, so the buffer of the socket
// is empty, and a short request fits. This reasoning holds for TCP, but not necessarily for TLS or for connections of
// a user's dialer.

// promptWriter is a connection that takes a short write at once when the peer read everything sent before.
type promptWriter interface{ WritesPromptly() }

// shortWrite is a number of bytes that fits into the buffer of any socket. Linux has 4.5 KiB at least.
const shortWrite = 1 << 10

func writesPromptly(conn net.Conn) bool {
	switch conn.(type) {
	case *net.TCPConn, promptWriter:
		return true
	default:
		return false
	}
}

// writeAtOnce writes the content of the outbox if the content is short, no other goroutine writes, and no answer is due. Otherwise it
// returns false, and the line's writer has to write.
func (l *Line) writeAtOnce() (isFlushed bool) {
	if !l.isPrompt.Load() {
		return false
	}
	select {
	case <-l.credentialsDone: // before that, zk.Conn presents its credentials
	default:
		return false
	}
	select {
	case l.contact.writing <- struct{}{}:
	default:
		return false
	}
	var err error
	if !l.contact.isAnswerDue() {
		isFlushed, err = l.flushInTurn(shortWrite)
	}
	<-l.contact.writing
	if err != nil {
		l.failWith(err)
	}
	return isFlushed
}
