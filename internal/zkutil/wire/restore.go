package wire

import (
	"net"
	"time"
)

// watchRestore delays answers on a line until zk.Conn asks the server to set the watches again. The request, setWatches, says
// "my watches are set since zxid x". zk.Conn reads x while building the request, in a goroutine of its own, and each answer
// read by zk.Conn raises x. If an answer passed too early, changes before that answer would never be reported.
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
//	(b) A setWatches was written that an earlier line left in zk.Conn's queue, ahead of this line's setWatches. The wait continues for nextSetWatchesWait at most.
//	(c) The last queued setWatches was written, the session's end was requested, or one period
//	    is over.
//	(d) Unless the session's end was requested, because the answer may still arrive.
//
// In SETTLING and AWAITING SETWATCHES the reader stops at the first answer with a zxid, and so delays all later frames. If the
// line is closed or abandoned meanwhile, the answer is lost. Pings and watch events pass, because zk.Conn takes no zxid from a
// ping or event. The answer to a credential passes with the zxid set to 0, because zk.Conn sends nothing else before the
// answer. In the same way all answers pass after the session's end was requested, because zk.Conn sends nothing more.
//
// In REFUSED, zk.Conn continues as if the watches were set. So does the wire, for one period, in which a server that throttles
// and keeps refusing can serve everything else. Then the line is closed, and the next connection tries again. Only the watches
// of zk.Conn are concerned, because the engine sets its own watches anew on each connection.
type watchRestore struct {
	line *Line

	// Guarded by Wire.mu.
	releaseDone chan struct{} // closed when answers may pass; nil when none is held back
	waitLimit   *time.Timer   // ends the wait for releaseDone
}

// settlingTime is how long zk.Conn may take after a handshake to find that no watches exist. If an answer
// registered a watch earlier, zk.Conn would set the watch again. On a busy machine zk.Conn's goroutine may not
// run for some milliseconds.
const settlingTime = 10 * time.Millisecond

// nextSetWatchesWait is the maximum wait for a second setWatches, which zk.Conn may drop.
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

// awaitRelease blocks until answers may pass. awaitRelease returns an error if the line ends first.
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

// noteRefusal schedules the end of the line after the server refused setWatches.
func (r *watchRestore) noteRefusal() {
	l, w := r.line, r.line.wire
	period := w.owner.Period()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.goLocked(func() { // ends with the line
		select {
		case <-time.After(period):
		case <-l.closeDone:
			return
		}
		if !l.isClosing() {
			l.attempt.NoteFailure(errWatchesRefused)
			l.noteLineFailure(errWatchesRefused)
			_ = l.Close()
		}
	})
}
