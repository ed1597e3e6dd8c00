package zktest

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// session is a client's session, as the quorum knows it. The server's lock guards it.
type session struct {
	id      int64
	created time.Duration // the timeout granted at creation; a new leader knows no other
	timeout time.Duration // the timeout granted at the latest handshake
	expiry  time.Time
	timer   *time.Timer
	line    *line // nil while the session has no connection
	left    []leftWrite
}

// firstID is the number before the first session's id.
const firstID = 1 << 56

// open creates a session. That is a transaction, at which each server notes the session for its next report
// (LearnerSessionTracker.commitSession).
func (s *Server) open(timeout time.Duration) *session {
	s.nextZxid()
	s.lastID++
	n := s.addSession(s.lastID, timeout)
	for _, m := range s.members {
		if !m.stopped && !m.frozen && !m.isolated() {
			m.hear(n, timeout)
		}
	}
	return n
}

// addSession adds a session, which lives for its timeout from now.
func (s *Server) addSession(id int64, timeout time.Duration) *session {
	n := &session{id: id, created: timeout, timeout: timeout}
	s.sessions[n.id] = n
	n.timer = time.AfterFunc(time.Hour, func() { s.overdue(n) })
	s.extend(n, timeout)
	return n
}

// password derives a session's password from its id and the server's secret.
func (s *Server) password(id int64) []byte {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(slices.Clone(s.secret[:]), uint64(id)))
	return sum[:proto.PasswordLength]
}

// extend restarts a session's timeout, which may move the expiry to an earlier time. As on
// a real server, sessions expire at the end of a tick.
func (s *Server) extend(n *session, timeout time.Duration) {
	tick := s.cfg.byClock(s.cfg.tick)
	since := time.Since(s.began) + s.cfg.byClock(timeout)
	n.expiry = s.began.Add(since.Truncate(tick) + tick)
	n.timer.Reset(time.Until(n.expiry))
}

// overdue ends a session whose time is up. The session's timer calls it.
func (s *Server) overdue(n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[n.id] == n && s.hasQuorum() && !time.Now().Before(n.expiry) {
		s.end(n)
	}
}

// end closes a session: its connection and its ephemeral znodes go, the oldest first. For
// a client that both holds a lock and waits for it, oldest first is the worst order. A
// real server sends these events in any order.
func (s *Server) end(n *session) {
	n.timer.Stop()
	delete(s.sessions, n.id)
	if n.line != nil {
		n.line.dismiss()
	}
	s.nextZxid()
	c := s.change()
	for _, path := range s.tree.ephemerals(n.id) {
		c.remove(path)
	}
	s.commit(c)
}

// report reports to the leader which sessions the servers have heard from. It runs once
// per cfg.touch. If several servers report a session, the report with the shortest timeout
// is the last.
func (s *Server) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	heard := map[*session]time.Duration{}
	for _, m := range s.members {
		if m.frozen || m.isolated() || !s.hasQuorum() {
			continue
		}
		for n, timeout := range m.heard {
			if other, ok := heard[n]; !ok || timeout < other {
				heard[n] = timeout
			}
		}
		m.unreport()
	}
	s.extendAll(heard)
	s.reporter.Reset(s.cfg.byClock(s.cfg.touch))
}

// extendAll extends the sessions of a report that still exist.
func (s *Server) extendAll(heard map[*session]time.Duration) {
	for n, timeout := range heard {
		if s.sessions[n.id] == n {
			s.extend(n, timeout)
		}
	}
}

// beginEpoch starts a new leader's epoch and restarts all sessions' timeouts. Called
// under the lock.
func (s *Server) beginEpoch() {
	s.zxid, s.unused = (s.epoch()+1)<<epochShift, 0
	for _, n := range s.sessions {
		n.timeout = n.created
		s.extend(n, n.timeout)
	}
}

// epochShift is the position of the epoch in a zxid.
const epochShift = 32

// firstZxid is the zxid of an unused server.
const firstZxid = 1 << epochShift

// epoch returns the current leader's number. Called under the lock.
func (s *Server) epoch() int64 { return s.zxid >> epochShift }
