package zktest

import (
	"time"
)

// reach records when a frame gets through to the server, and when its request is due to
// be committed. Called under the lock.
func (l *line) reach(a *arrival) {
	if a.reached.IsZero() && !l.silent() {
		a.reached = time.Now()
		a.due = a.reached.Add(l.srv.pace.commit)
	}
}

// awaitCommit reports whether a request waits for its commit, and if so, wakes the
// connection at the time of the commit. Called under the lock.
func (l *line) awaitCommit(a *arrival) bool {
	lost := a.fault.Lost == RequestLost || a.fault.Lost == NoAnswer
	isPing := l.srv.cfg.traits.commitsPings && a.request.Op == OpPing
	if lost || !isPing && !a.request.awaitsCommit() {
		return false
	}
	due := a.due
	if n := l.session; n != nil {
		n.commitLeft()
		if l.last || l.closed {
			return true // one of them closed the session
		}
		for _, earlier := range n.left {
			due = later(due, earlier.due)
		}
	}
	wait := time.Until(due)
	if wait <= 0 {
		return false
	}
	l.pending = true
	time.AfterFunc(wait, func() { // does nothing after the end of the connection
		l.srv.mu.Lock()
		defer l.srv.mu.Unlock()
		l.pending = false
		l.wake()
	})
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// awaitsCommit reports whether a request is answered only after a commit of the quorum.
func (r Request) awaitsCommit() bool {
	return r.Op.isWrite() || r.Op == OpSync || r.Op == OpConnect && r.Session == 0
}

// leftWrite is a write with the quorum whose connection is over.
type leftWrite struct {
	line    *line
	frame   []byte
	request Request
	epoch   int64
	due     time.Time
}

// leaveCommits schedules the pending writes of a connection that ends. The writes are with the quorum, and are
// committed when they are due, in the order in which the session sent them. It returns their number. Called under the
// lock, while the connection still has its session.
func (l *line) leaveCommits() (left int) {
	n := l.session
	if n == nil || l.srv.pace.commit == 0 && !l.pending {
		return 0
	}
	l.pending = false
	for _, a := range l.inbox {
		r, ok := l.request(a)
		if a.reached.IsZero() || !ok || !r.Op.isWrite() {
			continue
		}
		left++
		n.left = append(n.left, leftWrite{l, a.frame, r, l.srv.epoch(), a.due})
		time.AfterFunc(time.Until(a.due), func() { // does nothing once the server is closed
			l.srv.mu.Lock()
			defer l.srv.mu.Unlock()
			n.commitLeft()
		})
	}
	l.inbox = nil
	return left
}

// commitLeft commits the session's left writes up to the first that is not due. Called
// under the lock.
func (n *session) commitLeft() {
	for len(n.left) > 0 && !time.Now().Before(n.left[0].due) {
		w := n.left[0]
		n.left = n.left[1:]
		l, s := w.line, w.line.srv
		if s.hasQuorum() && s.epoch() == w.epoch && s.sessions[n.id] == n {
			s.observe(w.request)
			l.session = n
			answer, _ := l.answer(w.frame, w.request.Op, Fault{})
			l.session = nil
			l.push(answer)
		}
		if isLast := len(n.left) == 0 || n.left[0].line != l; isLast && !l.closed {
			l.finish()
		}
	}
}
