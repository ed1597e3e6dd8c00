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
	wait := time.Until(a.due)
	lost := a.fault.Lost == RequestLost || a.fault.Lost == NoAnswer
	isPing := l.srv.cfg.traits.commitsPings && a.request.Op == OpPing
	if wait <= 0 || lost || !isPing && !a.request.awaitsCommit() {
		return false
	}
	l.pending = true
	time.AfterFunc(wait, func() { // does nothing once the connection has ended
		l.srv.mu.Lock()
		defer l.srv.mu.Unlock()
		l.pending = false
		l.wake()
	})
	return true
}

// awaitsCommit reports whether a request is answered only after a commit of the quorum.
func (r Request) awaitsCommit() bool {
	return r.Op.isWrite() || r.Op == OpSync || r.Op == OpConnect && r.Session == 0
}

// leaveCommits schedules the pending writes of a connection that ends: the writes are
// with the quorum, and are committed when they are due. It returns their number. Called
// under the lock, while the connection still has its session.
func (l *line) leaveCommits() (left int) {
	n := l.session
	if n == nil || l.srv.pace.commit == 0 && !l.pending {
		return 0
	}
	l.pending = false
	epoch := l.srv.epoch()
	remaining := 0
	for _, a := range l.inbox {
		r, ok := l.request(a)
		if a.reached.IsZero() || !ok || !r.Op.isWrite() {
			continue
		}
		left++
		time.AfterFunc(time.Until(a.due), func() { // does nothing once the server is closed
			s := l.srv
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.running() && s.epoch() == epoch && s.sessions[n.id] == n {
				s.observe(r)
				l.session = n
				answer, _ := l.answer(a.frame, r.Op, Fault{})
				l.session = nil
				l.push(answer)
			}
			if remaining--; remaining == 0 && !l.closed {
				l.finish()
			}
		})
	}
	remaining = left
	l.inbox = nil
	return left
}
