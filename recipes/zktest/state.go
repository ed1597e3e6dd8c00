package zktest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// Session is what the server knows of a client.
type Session struct {
	ID         int64
	Timeout    time.Duration
	Expiry     time.Time // when it ends unless it is heard of
	Server     string    // the address that it is connected to; empty: none
	Ephemerals []string  // paths, the oldest first
	Watches    int
}

// Sessions are those that live, the oldest first.
func (s *Server) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Session, 0, len(s.sessions))
	for _, n := range s.sessions {
		all = append(all, s.describe(n))
	}
	slices.SortFunc(all, func(a, b Session) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Session returns one that lives.
func (s *Server) Session(id int64) (session Session, alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.sessions[id]; ok {
		return s.describe(n), true
	}
	return Session{}, false
}

// describe is called under the lock.
func (s *Server) describe(n *session) Session {
	d := Session{ID: n.id, Timeout: n.timeout, Expiry: n.expiry, Ephemerals: s.tree.ephemerals(n.id)}
	if n.line != nil {
		d.Server, d.Watches = n.line.server.address, len(n.line.watches)
	}
	return d
}

// Connections is how many there are, handshake done or not.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines)
}

// Children are the names below a znode, sorted; none if there is no such znode.
func (s *Server) Children(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.tree.find(path)
	if n == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(n.children))
}

// Get returns a znode's data and stat.
func (s *Server) Get(path string) (data []byte, stat zk.Stat, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.tree.find(path)
	if n == nil {
		return nil, zk.Stat{}, false
	}
	return slices.Clone(n.data), n.view(), true
}

// Delete removes a znode and all below it behind the back of every client, whose
// watches fire. It does nothing where there is none.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isSpecial(path) || s.tree.nodes[path] == nil {
		return
	}
	s.zxid++
	c := s.change()
	var below []string
	for other := range s.tree.nodes {
		if strings.HasPrefix(other, path+"/") {
			below = append(below, other)
		}
	}
	slices.SortFunc(below, func(a, b string) int { return cmp.Compare(b, a) }) // children first
	for _, other := range append(below, path) {
		c.remove(other)
	}
	s.commit(c)
}

// SetSequence sets the number that the next sequential child of a znode gets. A real
// server counts to 2147483647 and stays there. It panics if there is no such znode.
func (s *Server) SetSequence(path string, next int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.tree.find(path)
	if n == nil {
		panic(fmt.Sprintf("zktest: no znode %q", path))
	}
	n.creates = next
}
