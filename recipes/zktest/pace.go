package zktest

import (
	"fmt"
	"time"
)

// pace is how slow the servers are. The server's lock guards it.
type pace struct {
	commit    time.Duration
	handshake time.Duration
	bandwidth int           // bytes per second; 0: no limit
	limits    map[int64]int // the same for single sessions
}

// SlowCommits makes the quorum slow, until it is called with 0: a write, a sync or the
// handshake of a new session is executed and answered d after it arrived, and whatever
// is behind it on its connection, pings too, waits for that. Nobody sees a write before
// its commit. Writes overlap: of two that arrive together, both are answered after d.
// Other connections go on, as does the handshake of a session that exists.
//
// A write that has arrived is committed even if its connection ends before, and its
// session has moved to another. It is lost if the session has ended by then, or if another leader
// is elected. A change of d concerns what arrives from then on.
func (s *Server) SlowCommits(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.commit = d
}

// SlowHandshakes makes every handshake slow, until it is called with 0: the server
// accepts the connection and renews the session at once, and answers d after the
// handshake has arrived.
func (s *Server) SlowHandshakes(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.handshake = d
}

// SetBandwidth limits what the server sends on each connection of some sessions, or on
// each connection if none is named: an answer arrives at that rate, in small pieces every
// 10 ms. 0 takes the limit away; without a session, it takes all limits away. What the
// clients send is not limited.
func (s *Server) SetBandwidth(bytesPerSecond int, sessions ...int64) {
	if bytesPerSecond < 0 {
		panic(fmt.Sprintf("zktest: bandwidth of %d bytes per second", bytesPerSecond))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkSessionsLocked(sessions)
	if len(sessions) == 0 {
		s.pace.bandwidth, s.pace.limits = bytesPerSecond, nil
		return
	}
	if s.pace.limits == nil {
		s.pace.limits = map[int64]int{}
	}
	for _, id := range sessions {
		s.pace.limits[id] = bytesPerSecond
	}
}

// pieceInterval is the time between two pieces on a slow connection.
const pieceInterval = 10 * time.Millisecond

// takeBatch takes what is to be sent next out of the outbox, and tells how long its way
// takes. Called under the lock.
func (l *line) takeBatch() (batch []byte, pause time.Duration) {
	rate, ok := l.srv.pace.limits[l.claims]
	if !ok {
		rate = l.srv.pace.bandwidth
	}
	batch = l.outbox
	if rate == 0 {
		l.outbox = nil
		return batch, 0
	}
	n := min(len(batch), max(1, rate/int(time.Second/pieceInterval)))
	l.outbox = batch[n:]
	return batch[:n:n], time.Duration(n) * time.Second / time.Duration(rate)
}

// reach notes when a frame gets through to the server, and when it would be committed.
// Called under the lock.
func (l *line) reach(a *arrival) {
	if a.reached.IsZero() && !l.silent() {
		a.reached = time.Now()
		a.due = a.reached.Add(l.srv.pace.commit)
	}
}

// slowHandshake is how late the answer to a handshake is. Called under the lock.
func (l *line) slowHandshake(a *arrival) time.Duration {
	if l.srv.pace.handshake == 0 {
		return 0
	}
	return time.Until(a.reached.Add(l.srv.pace.handshake))
}

// awaitCommit tells whether a request waits for its commit, and wakes the connection at
// the time of that. Called under the lock.
func (l *line) awaitCommit(a *arrival) bool {
	wait := time.Until(a.due)
	lost := a.fault.Lost == RequestLost || a.fault.Lost == NoAnswer
	if wait <= 0 || lost || !a.request.awaitsCommit() {
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

// awaitsCommit tells whether a request is answered behind a commit of the quorum.
func (r Request) awaitsCommit() bool {
	return r.Op.isWrite() || r.Op == OpSync || r.Op == OpConnect && r.Session == 0
}

// leaveCommits lets the writes of a connection that ends be committed when they are due:
// they are with the quorum. It returns how many they are. Called under the lock, while the
// connection has its session.
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
