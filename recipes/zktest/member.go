package zktest

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// member is one server of the ensemble. The lock of the whole guards it.
type member struct {
	srv        *Server
	address    string
	listener   net.Listener
	stopped    bool
	minTimeout time.Duration // what it grants in handshakes
	maxTimeout time.Duration
	frozen     bool
	view       *tree            // what it still sees, if it is cut off from the others
	ghosts     map[string]*node // znodes that it shows even where they are gone
	cut        cut              // who can't reach it
	seen       int64            // the zxid of that
}

func (m *member) isolated() bool { return m.view != nil }

// find returns a znode as this server shows it.
func (m *member) find(path string) *node {
	switch {
	case m.isolated():
		return m.view.find(path)
	case len(m.ghosts) > 0:
		return m.findWithGhosts(path)
	default:
		return m.srv.tree.find(path)
	}
}

// seenBy is the last zxid that a server has heard of.
func (s *Server) seenBy(m *member) int64 {
	if m.isolated() {
		return m.seen
	}
	return s.zxid
}

// listen is called under the lock.
func (m *member) listen() error {
	listener, err := net.Listen("tcp", m.address)
	if err != nil {
		return fmt.Errorf("zktest: %w", err)
	}
	m.listener, m.address = listener, listener.Addr().String()
	m.srv.work.Add(1)
	go m.accept(listener) // until the listener is closed; joined by Close
	return nil
}

func (m *member) unlisten() {
	if m.listener != nil {
		_ = m.listener.Close()
		m.listener = nil
	}
}

func (m *member) accept(listener net.Listener) {
	defer m.srv.work.Done()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-time.After(10 * time.Millisecond) // out of file descriptors, say, but not for long
			continue
		}
		m.srv.mu.Lock()
		if m.srv.closed || m.stopped {
			_ = conn.Close()
		} else {
			m.srv.carry(m, conn)
		}
		m.srv.mu.Unlock()
	}
}

// restart is called under the lock.
func (m *member) restart() error {
	if !inBubble() {
		if err := m.listen(); err != nil {
			return err
		}
	}
	m.stopped = false
	return nil
}

// drop ends the connections of a server. Called under the lock.
func (m *member) drop() {
	for l := range m.srv.lines {
		if l.server == m {
			l.dismiss()
		}
	}
}

// report tells the leader at once which sessions a server has heard of: the first thing that
// one does which goes on after a pause, for the leader has asked meanwhile. Called under the lock.
func (m *member) report() {
	for _, n := range m.srv.sessions {
		if n.heard && n.line != nil && n.line.server == m {
			m.srv.extend(n)
		}
	}
}

// unreport drops what a server that is cut off had still to report to its leader. Called
// under the lock.
func (m *member) unreport() {
	for _, n := range m.srv.sessions {
		if n.line != nil && n.line.server == m {
			n.heard = false
		}
	}
}
