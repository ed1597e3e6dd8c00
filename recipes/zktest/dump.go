package zktest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Dump is all znodes but the server's own, a line each, sorted by path, for golden tests:
// the data, whose ephemeral znode it is, and the ACL if that is not open to all.
//
//	/locks "" container
//	/locks/_c_*-lock-0000000000 "10.0.0.7" ephemeral of session 2
//
// Nothing in it differs between two runs that do the same: sessions are numbered in the
// order in which they were opened, and a star stands for the random part of the
// names that recipes give.
func (s *Server) Dump() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	s.dump(&b, "/", "")
	return b.String()
}

// dump writes the znodes below a path, which the reader knows as shown.
func (s *Server) dump(b *strings.Builder, path, shown string) {
	type child struct{ path, shown string }
	dir := strings.TrimSuffix(path, "/")
	var children []child
	for name := range maps.Keys(s.tree.nodes[path].children) {
		if full := dir + "/" + name; full != "/zookeeper" {
			children = append(children, child{full, shown + "/" + maskRandom(name)})
		}
	}
	slices.SortFunc(children, func(x, y child) int {
		return cmp.Or(cmp.Compare(x.shown, y.shown), cmp.Compare(s.tree.nodes[x.path].stat.Czxid, s.tree.nodes[y.path].stat.Czxid))
	})
	for _, c := range children {
		n := s.tree.nodes[c.path]
		fmt.Fprintf(b, "%s %q%s%s\n", c.shown, n.data, describeOwner(n), describeACL(n.acl))
		s.dump(b, c.path, c.shown)
	}
}

// maskRandom puts a star for the random part of a name by which a recipe finds its
// znode again: _c_, a UUID with or without its hyphens, and a hyphen.
func maskRandom(name string) string {
	rest, protected := strings.CutPrefix(name, "_c_")
	for _, length := range []int{36, 32} {
		if protected && len(rest) > length && rest[length] == '-' && strings.Trim(rest[:length], "0123456789abcdef-") == "" {
			return "_c_*" + rest[length:]
		}
	}
	return name
}

// label is how a session is called where its id would be different in each run.
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
