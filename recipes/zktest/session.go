package zktest

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// session is a client's, as the quorum knows it. The server's lock guards it.
type session struct {
	id      int64
	created time.Duration // the timeout with which it was made: all that a new leader knows
	timeout time.Duration // that of its latest handshake
	expiry  time.Time
	heard   bool // since the last report of the servers
	timer   *time.Timer
	line    *line // nil while it has no connection
}

// firstID is below the id of the first session.
const firstID = 1 << 56

// password follows from the id and a secret of this server's.
func (s *Server) password(id int64) []byte {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(slices.Clone(s.secret[:]), uint64(id)))
	return sum[:proto.PasswordLength]
}

// open makes a session.
func (s *Server) open(timeout time.Duration) *session {
	s.zxid++
	s.lastID++
	n := &session{id: s.lastID, created: timeout, timeout: timeout}
	s.sessions[n.id] = n
	n.timer = time.AfterFunc(time.Hour, func() { s.overdue(n) })
	s.extend(n)
	return n
}

// hear notes a sign of life.
func (s *Server) hear(n *session) {
	n.heard = true
	if s.cfg.touch == 0 {
		s.extend(n)
	}
}

// extend gives a session its timeout again. As on a real server it ends with a tick.
func (s *Server) extend(n *session) {
	n.heard = false
	since := time.Since(s.began) + n.timeout
	n.expiry = s.began.Add(since.Truncate(s.cfg.tick) + s.cfg.tick)
	n.timer.Reset(time.Until(n.expiry))
}

// overdue is called by a session's timer.
func (s *Server) overdue(n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[n.id] == n && s.running() && !time.Now().Before(n.expiry) {
		s.end(n)
	}
}

// end closes a session: its connection goes, and its ephemeral znodes.
func (s *Server) end(n *session) {
	n.timer.Stop()
	delete(s.sessions, n.id)
	if n.line != nil {
		n.line.dismiss()
	}
	s.zxid++
	c := s.change()
	for _, path := range s.tree.ephemerals(n.id) {
		c.remove(path)
	}
	s.commit(c)
}

// report tells the leader which sessions the servers have heard of. It runs every
// cfg.touch.
func (s *Server) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, n := range s.sessions {
		if n.heard && s.running() && (n.line == nil || !n.line.server.frozen) {
			s.extend(n)
		}
	}
	s.reporter.Reset(s.cfg.touch)
}
