package zktest

import (
	"fmt"
	"slices"
)

// DropEvent loses the next n watch events to some sessions, or to any if none is named:
// the watch is used up, its client is told nothing, and the connection goes on. Remove
// calls off what has not happened yet. For all events until then, n is math.MaxInt.
func (s *Server) DropEvent(n int, sessions ...int64) (remove func()) {
	if n < 1 {
		panic(fmt.Sprintf("zktest: DropEvent of %d events", n))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkSessionsLocked(sessions)
	loss := &eventLoss{left: n, sessions: slices.Clone(sessions)}
	s.deafness = append(s.deafness, loss)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.deafness = slices.DeleteFunc(s.deafness, func(other *eventLoss) bool { return other == loss })
	}
}

// eventLoss is how many events to whom are still to be lost.
type eventLoss struct {
	left     int
	sessions []int64
}

// loseEventLocked tells whether the next event to a session is lost, and counts it.
func (s *Server) loseEventLocked(session int64) bool {
	for _, loss := range s.deafness {
		if loss.left > 0 && concerns(loss.sessions, session) {
			loss.left--
			return true
		}
	}
	return false
}
