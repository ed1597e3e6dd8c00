package zktest

import (
	"fmt"
	"maps"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// KeepShowing makes some servers, or all if none is named, go on showing a znode as it is
// now, also when it is gone: they return it and list it, and tell nobody of its deletion.
// Everything else is as before: writes go to the quorum, which knows better. Real servers
// were seen to do so after they had lost a transaction, until their next restart. It ends
// with [Server.Heal] and with Stop; the servers drop their clients then. It panics if
// there is no such znode now.
func (s *Server) KeepShowing(path string, servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.namedLocked(servers) {
		n := m.find(path)
		if n == nil {
			panic(fmt.Sprintf("zktest: no znode %q to keep showing", path))
		}
		if m.ghosts == nil {
			m.ghosts = map[string]*node{}
		}
		image := *n
		image.children = nil
		m.ghosts[path] = &image
	}
}

// findWithGhosts returns a znode, or what the server shows where there is none any more.
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

// hides tells whether a server does not notice a deed.
func (m *member) hides(d deed) bool {
	return d.kind == proto.EventDeleted && m.ghosts[d.path] != nil
}
