package wire

import (
	"net"
	"time"
)

// watchRestore holds answers back on one line until zk.Conn has asked the server to set its watches
// again. That request, setWatches, says "my watches stand since zxid x". zk.Conn reads x when it
// builds the request, in a goroutine of its own, and each answer that it reads raises x. If an
// answer passed too early, a znode that changed before that answer would never be reported.
//
//	                     handshake answered
//	                             |
//	            +----------------+----------------+
//	            | zk.Conn has no watches          | zk.Conn has watches
//	            v                                 v
//	        SETTLING                      AWAITING SETWATCHES <--+ (b)
//	            |                                 |   |          |
//	            | (a)                             |   +----------+
//	            |                                 | (c)
//	            +-------------> RELEASED <--------+
//	                               |
//	                               | setWatches refused by the server
//	                               v
//	                            REFUSED -- one period later --> line closed (d)
//
//	(a) settlingTime is over, a setWatches was written, or the session's end was requested.
//	(b) A setWatches was written that an earlier line has left in zk.Conn's queue, where it
//	    comes before the one of this line. The wait goes on for nextSetWatchesWait at most.
//	(c) The last queued setWatches was written, the session's end was requested, or one period
//	    is over.
//	(d) Unless the session's end has been requested: its answer may still come.
//
// In SETTLING and AWAITING SETWATCHES the reader stops at the first answer that has a zxid; what
// comes behind that answer waits with it. If the line is closed or abandoned meanwhile, the answer
// is lost. Pings and watch events pass, because zk.Conn takes no zxid from them. The answer to a
// credential passes with its zxid set to 0, because zk.Conn sends nothing else before it comes. In the
// same way all answers pass after the session's end was requested, because zk.Conn sends nothing more.
//
// In REFUSED, zk.Conn goes on as if it had its watches. So does the wire, for one period: a server
// that throttles and goes on refusing can serve everything else in that time. Then the line is closed: the
// next connection tries again. That concerns the watches of zk.Conn alone, because the engine sets its own
// anew on each connection.
type watchRestore struct {
	line *Line

	// Guarded by Wire.mu.
	releaseDone chan struct{} // closed when answers may pass; nil when none is held back
	waitLimit   *time.Timer   // ends the wait for releaseDone
}

// settlingTime is how long zk.Conn may take after a handshake to find that it has no watches. If an
// answer registered a watch before that, zk.Conn would set it again. On a busy machine zk.Conn's
// goroutine may not run for some milliseconds.
const settlingTime = 10 * time.Millisecond

// nextSetWatchesWait is how long to wait for a second setWatches, which zk.Conn may have dropped.
const nextSetWatchesWait = 50 * time.Millisecond

// holdAnswersLocked begins to hold answers back, at the end of the handshake.
func (r *watchRestore) holdAnswersLocked(period time.Duration) {
	w := r.line.wire
	limit := settlingTime
	if len(w.watches) > 0 {
		w.queuedSetWatches++
		limit = period // reached only by a zk.Conn that sends no setWatches
	}
	r.releaseDone = make(chan struct{})
	r.waitLimit = time.NewTimer(limit)
}

// releaseLocked lets answers pass.
func (r *watchRestore) releaseLocked() {
	if r.releaseDone == nil {
		return
	}
	r.line.wire.queuedSetWatches = 0
	r.waitLimit.Stop()
	close(r.releaseDone)
	r.releaseDone = nil
}

// noteSetWatches is called when a setWatches was written.
func (r *watchRestore) noteSetWatches() {
	w := r.line.wire
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queuedSetWatches = max(w.queuedSetWatches-1, 0)
	if w.queuedSetWatches == 0 {
		r.releaseLocked()
	} else if r.releaseDone != nil {
		r.waitLimit.Reset(nextSetWatchesWait)
	}
}

// awaitRelease blocks until answers may pass. It returns an error if the line ends first.
func (r *watchRestore) awaitRelease() error {
	l := r.line
	l.wire.mu.Lock()
	releaseDone := r.releaseDone
	l.wire.mu.Unlock()
	if releaseDone == nil {
		return nil
	}
	select {
	case <-releaseDone:
	case <-l.closeDone:
		return net.ErrClosed
	case <-l.abandonDone:
		return errAbandoned
	case <-r.waitLimit.C:
		l.wire.mu.Lock()
		defer l.wire.mu.Unlock()
		r.releaseLocked()
	}
	return nil
}

// noteRefusal is called when the server has refused setWatches. It schedules the end of the line.
func (r *watchRestore) noteRefusal() {
	l, w := r.line, r.line.wire
	period := w.owner.Period()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed {
		return
	}
	w.tasks.Go(func() { // ends with the line
		select {
		case <-time.After(period):
		case <-l.closeDone:
			return
		}
		if !l.isClosing() {
			w.noteFailure(l.Address, errWatchesRefused)
			l.noteLineFailure(errWatchesRefused)
			_ = l.Close()
		}
	})
}
