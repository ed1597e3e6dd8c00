package session

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Leaving is an entry that was given back: see Entry.BeginLeave. The deletion of the znode goes on
// whether or not anybody waits for it. The zero value has nothing to wait for.
type Leaving struct {
	err     error // of an entry that could not be given back
	s       *Session
	removal *removal // nil: there is nothing to wait for
	beganAt time.Time
}

func newLeaving(s *Session, r *removal) Leaving {
	return Leaving{s: s, removal: r, beganAt: time.Now()}
}

// Await returns the error of Leave once the znode is gone, at the latest an operation timeout after the
// deletion has begun. So a caller that awaits several deletions that began together, one after the other,
// waits no longer than for one. If stop is closed first, the error is nil. stop may be nil.
func (l Leaving) Await(stop <-chan struct{}) error {
	r, s := l.removal, l.s
	if r == nil || isDone(r.done) {
		return l.err
	}
	limit := s.cfg.OperationTimeout
	timer := s.startTimer(time.Until(l.beganAt.Add(limit)))
	defer s.stopTimer(timer)
	select {
	case <-r.done:
		return nil
	case <-s.life.open.Done():
		return zkutil.ErrClosed
	case <-stop:
		return nil
	case <-timer.C:
	}
	s.mu.Lock()
	failure := r.failure
	s.mu.Unlock()
	if failure == nil {
		failure = s.whyUnavailable()
	}
	return notDeleted(limit, failure)
}
