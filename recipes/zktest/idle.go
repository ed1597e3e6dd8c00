package zktest

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// RequireIdle waits until there is no ephemeral znode and no watch: until what the
// program under test has held is given back. If something is left after 5 s, it fails the
// test with a list of that. In a bubble of testing/synctest these are virtual seconds.
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
			return // where a fake testing.TB goes on
		}
	}
}

// leftovers are the ephemeral znodes and the watches, a line each.
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
