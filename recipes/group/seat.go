package group

import (
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// seat is the right to be the member of an ID among the groups of one client. To the server all znodes of the client are of one
// session, so that two groups would take the znode of the other for their own, and delete it.
type seat struct {
	mu      sync.Mutex // protects the fields below
	holder  *membership
	changes zkutil.Changes
}

// seatKey is the key of a seat among the values that a session shares. It is the path of the znode.
type seatKey string

// take takes the seat for a membership. If another one has it, changed is closed when that may be over.
func (s *seat) take(m *membership) (isTaken bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == nil {
		s.holder = m
	}
	return s.holder == m, s.changes.ChangedLocked()
}

func (s *seat) leave(m *membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == m {
		s.holder = nil
		s.changes.AnnounceLocked()
	}
}
