package zktest

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// member is one server of the ensemble. The Server's lock guards it.
type member struct {
	srv        *Server
	address    string
	listener   net.Listener
	stopped    bool
	minTimeout time.Duration // bounds of the timeouts granted in handshakes
	maxTimeout time.Duration
	frozen     bool
	view       *tree            // the tree as of the isolation; nil if not isolated
	ghosts     map[string]*node // znodes shown even after their deletion
	cut        cut              // sessions that can't reach this server
	seen       int64            // the last zxid in view

	// The sessions heard from since the last report, with the timeout granted by this server. A server reports
	// sessions that moved to another server, too.
	heard map[*session]time.Duration
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

// findWithGhosts returns a znode, or the ghost that the server shows in place of a
// deleted znode.
func (m *member) findWithGhosts(path string) *node {
	n := m.srv.tree.find(path)
	if n == nil {
		return m.ghosts[path]
	}
	children := maps.Clone(n.children)
	for ghost := range m.ghosts {
		if max(dirOf(ghost), "/") == path {
			if children == nil {
				children = map[string]struct{}{}
			}
			children[nameOf(ghost)] = struct{}{}
		}
	}
	image := *n
	image.children = children
	return &image
}

// hides reports whether the server conceals d because it still shows the deleted znode.
func (m *member) hides(d deed) bool {
	return d.kind == proto.EventDeleted && m.ghosts[d.path] != nil
}

// lastZxid returns the last zxid that the server knows.
func (m *member) lastZxid() int64 {
	if m.isolated() {
		return m.seen
	}
	return m.srv.zxid
}

// listen opens the listener and starts the accept loop. Called under the lock.
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
			<-time.After(10 * time.Millisecond) // for example, out of file descriptors for a moment
			continue
		}
		m.srv.mu.Lock()
		if m.srv.closed || m.stopped {
			_ = conn.Close()
		} else {
			m.carry(conn)
		}
		m.srv.mu.Unlock()
	}
}

// restart starts a stopped server. Called under the lock.
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

// report reports to the leader which sessions were active. A server does so first when it resumes after a pause,
// because the leader asked meanwhile. Called under the lock.
func (m *member) report() {
	m.srv.extendAll(m.heard)
	m.unreport()
}

// hear records a sign of life of a session, for the next report. Called under the lock.
func (m *member) hear(n *session, timeout time.Duration) {
	if m.srv.cfg.touch == 0 {
		m.srv.extend(n, timeout)
		return
	}
	if m.heard == nil {
		m.heard = map[*session]time.Duration{}
	}
	m.heard[n] = timeout
}

// unreport discards unreported data of the server. Called under the lock.
func (m *member) unreport() { m.heard = nil }
