package zktest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Session is the server's view of a client.
type Session struct {
	ID         int64
	Timeout    time.Duration
	Expiry     time.Time // end of the session unless a sign of life arrives
	Server     string    // address of the connected server; empty if not connected
	Ephemerals []string  // paths, the oldest first
	Watches    int
}

// Sessions returns the live sessions, the oldest first.
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

// Session returns a live session.
func (s *Server) Session(id int64) (session Session, alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.sessions[id]; ok {
		return s.describe(n), true
	}
	return Session{}, false
}

// describe returns the public view of a session. Called under the lock.
func (s *Server) describe(n *session) Session {
	d := Session{ID: n.id, Timeout: n.timeout, Expiry: n.expiry, Ephemerals: s.tree.ephemerals(n.id)}
	if n.line != nil {
		d.Server, d.Watches = n.line.server.address, len(n.line.watches)
	}
	return d
}

// Connections returns the number of connections, with or without a completed handshake.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines)
}

// Children returns the sorted names below a znode, or nil if the znode does not exist. It
// panics on a path that no znode can have.
func (s *Server) Children(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	checkPath(path)
	n := s.tree.find(path)
	if n == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(n.children))
}

// Get returns a znode's data and stat. It panics on a path that no znode can have.
func (s *Server) Get(path string) (data []byte, stat zk.Stat, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	checkPath(path)
	n := s.tree.find(path)
	if n == nil {
		return nil, zk.Stat{}, false
	}
	return slices.Clone(n.data), n.view(), true
}

// ACL returns a znode's ACL, nil if there is no such znode.
func (s *Server) ACL(path string) []zk.ACL {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.tree.find(path); n != nil {
		return slices.Clone(n.acl)
	}
	return nil
}

// Dump returns all znodes but the server's own, one line each, sorted by path, for golden
// tests. A line has the path, the data, the owner of an ephemeral znode, and the ACL
// unless the znode is open to all.
//
//	/locks "" container
//	/locks/_c_*-lock-0000000000 "10.0.0.7" ephemeral of session 2
//
// Dump returns the same text in every run of the same program: sessions are numbered in
// the order in which they were opened, and a star replaces the random part of the names
// that recipes create.
func (s *Server) Dump() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	s.tree.dump(&b, "/", "")
	return b.String()
}

// dump writes the znodes below path, which appears as shown in the output.
func (t *tree) dump(b *strings.Builder, path, shown string) {
	type child struct{ path, shown string }
	dir := strings.TrimSuffix(path, "/")
	var children []child
	for name := range maps.Keys(t.nodes[path].children) {
		if full := dir + "/" + name; full != "/zookeeper" {
			children = append(children, child{full, shown + "/" + maskRandom(name)})
		}
	}
	slices.SortFunc(children, func(x, y child) int {
		return cmp.Or(cmp.Compare(x.shown, y.shown), cmp.Compare(t.nodes[x.path].stat.Czxid, t.nodes[y.path].stat.Czxid))
	})
	for _, c := range children {
		n := t.nodes[c.path]
		fmt.Fprintf(b, "%s %q%s%s\n", c.shown, n.data, describeOwner(n), describeACL(n.acl))
		t.dump(b, c.path, c.shown)
	}
}

// maskRandom replaces the random part of a recipe's znode name by a star. That part is the prefix _c_, a UUID with or
// without hyphens, and a hyphen.
func maskRandom(name string) string {
	rest, protected := strings.CutPrefix(name, "_c_")
	for _, length := range []int{36, 32} {
		if protected && len(rest) > length && rest[length] == '-' && strings.Trim(rest[:length], "0123456789abcdef-") == "" {
			return "_c_*" + rest[length:]
		}
	}
	return name
}

// label names a session in a text that must be the same in each run, unlike the id.
func label(session int64) string { return fmt.Sprintf("session %d", session-firstID) }

func describeOwner(n *node) string {
	switch owner := n.stat.EphemeralOwner; {
	case n.isEphemeral():
		return " ephemeral of " + label(owner)
	case owner == proto.ContainerOwner:
		return " container"
	case ttlOf(owner) > 0:
		return " ttl " + ttlOf(owner).String()
	default:
		return ""
	}
}

func describeACL(acl []zk.ACL) string {
	if slices.Equal(acl, zk.WorldACL(zk.PermAll)) {
		return ""
	}
	var b strings.Builder
	for _, entry := range acl {
		fmt.Fprintf(&b, " %s:%s:", entry.Scheme, entry.ID)
		for i, letter := range "rwcda" {
			if entry.Perms&(1<<i) != 0 {
				b.WriteRune(letter)
			}
		}
	}
	return b.String()
}

// RequireIdle waits until no ephemeral znode and no watch is left, that is, until the program under test releases
// everything. After 5 s it fails the test with a list of the leftovers. In a bubble of testing/synctest these are
// virtual seconds.
func (s *Server) RequireIdle(tb testing.TB) {
	tb.Helper()
	const patience, pause = 5 * time.Second, 5 * time.Millisecond
	for end := time.Now().Add(patience); ; <-time.After(pause) {
		left := s.leftovers()
		if len(left) == 0 {
			return
		}
		if !time.Now().Before(end) {
			tb.Fatalf("zktest: not idle after %v:\n\t%s", patience, strings.Join(left, "\n\t"))
			return // reached if a fake testing.TB does not stop the goroutine
		}
	}
}

// leftovers returns the ephemeral znodes and the watches, one line each.
func (s *Server) leftovers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []string
	for id := range s.tree.owned {
		for _, path := range s.tree.ephemerals(id) {
			left = append(left, "ephemeral znode "+path+" of "+label(id))
		}
	}
	kinds := map[watchKind]string{dataWatch: "data", childWatch: "children"}
	for key, lines := range s.watches {
		for _, l := range lines {
			left = append(left, "watch on the "+kinds[key.kind]+" of "+key.path+", set by "+label(l.claims))
		}
	}
	slices.Sort(left)
	return left
}
