package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// removal is a guaranteed delete. It goes on in the background until the server has confirmed that the
// znode is gone, or the session is closed.
type removal struct {
	path  string
	owner int64         // the session to which the znode belongs
	done  chan struct{} // closed once the znode is known to be gone

	// Guarded by Session.mu.
	failure error // of the latest attempt
}

// newRemovalLocked returns the guaranteed delete of a znode of this session, which has to be begun. The
// session is kept proven until it ends. A delete by name can't hit the znode of another, because our names
// have a uuid.
func (s *Session) newRemovalLocked(path string) *removal {
	delete(s.live.nodes, path)
	s.retainLocked()
	return &removal{path: path, owner: s.link.id, done: make(chan struct{})}
}

// begin sends the delete, and takes no goroutine for that unless it fails.
func (r *removal) begin(s *Session) {
	s.mu.Lock()
	if !s.link.isConnected || s.conn == nil || s.life.isSealedLocked() {
		s.removeInBackgroundLocked(r, nil)
		s.mu.Unlock()
		return
	}
	t := s.admitLocked(1)
	s.mu.Unlock()
	c := deleteCall(r.path, anyVersion)
	c.removal = r
	s.sendAdmitted(t, c)
}

// onRemovalAnsweredLocked takes the answer to the delete of begin.
func (s *Session) onRemovalAnsweredLocked(r *removal, err error) {
	if !isGone(err) {
		s.removeInBackgroundLocked(r, err)
		return
	}
	s.budget.gone(r.path)
	close(r.done)
	s.releaseLocked()
}

// removeInBackgroundLocked repeats the delete until the znode is gone. failure is that of the first attempt,
// nil if there was none.
func (s *Session) removeInBackgroundLocked(r *removal, failure error) {
	if !s.backgroundLocked(func(ctx context.Context) {
		if s.deleteUntilGone(ctx, r, failure) == nil {
			close(r.done)
		}
		s.Release()
	}) {
		s.releaseLocked()
	}
}

// RemoveLater begins the guaranteed delete of a znode of this session, and notes it in the leftovers
// of ctx. done is closed once the server has confirmed that the znode is gone.
func (s *Session) RemoveLater(ctx context.Context, path string) (done <-chan struct{}) {
	s.mu.Lock()
	r := s.newRemovalLocked(path)
	s.mu.Unlock()
	trackDeletion(ctx, r.done)
	r.begin(s)
	return r.done
}

// RemoveTwin is RemoveLater for another znode of the create that has made the one at path.
func (s *Session) RemoveTwin(ctx context.Context, path, twin string) {
	s.budget.addTwin(path, twin)
	s.RemoveLater(ctx, twin)
}

// removeAndWait is the guaranteed delete within a task of the session.
func (s *Session) removeAndWait(ctx context.Context, path string) {
	s.mu.Lock()
	r := &removal{path: path, owner: s.link.id}
	s.mu.Unlock()
	_ = s.deleteUntilGone(ctx, r, nil) // logged there; only the end of the session stops it
}

// deleteUntilGone repeats a delete until the znode is gone, its session has expired, or ctx ends,
// whose error it returns. failure is that of an attempt before, nil if there was none.
func (s *Session) deleteUntilGone(ctx context.Context, r *removal, failure error) error {
	policy := s.cfg.Retry.Patient()
	mayRepeat := func(err error) bool { return !errors.Is(err, zkutil.ErrClosed) && ctx.Err() == nil }
	mayPass := func(err error) bool { return mayRepeat(err) && !zkutil.IsRefused(err) }
	_, err := zkutil.RepeatWhile(ctx, policy.AfterRefusals(), mayRepeat, func() (struct{}, error) {
		return zkutil.RepeatWhile(ctx, policy, mayPass, func() (struct{}, error) {
			err := failure
			if failure = nil; err == nil {
				c := deleteCall(r.path, anyVersion)
				c.isCleanUp = true
				_, err = s.run(ctx, c)
			}
			if isGone(err) || s.isGoneWithItsSession(r, err) {
				return struct{}{}, nil
			}
			s.recordFailure(ctx, r, err)
			return struct{}{}, err
		})
	})
	if err == nil {
		s.budget.gone(r.path)
	}
	return err
}

// isGoneWithItsSession reports whether a delete that failed is not needed any more, because the server has removed the znode with
// its session.
func (s *Session) isGoneWithItsSession(r *removal, err error) bool {
	return (zkutil.IsRefused(err) || !zkutil.IsTransient(err)) && s.hasOtherSessionThan(r.owner)
}

// recordFailure keeps why an attempt of the delete failed, and logs it unless it is that of the attempt before.
func (s *Session) recordFailure(ctx context.Context, r *removal, err error) {
	s.mu.Lock()
	before := r.failure
	r.failure = err
	s.mu.Unlock()
	if ctx.Err() == nil && (before == nil || before.Error() != err.Error()) {
		s.Log(refusalLevel(err), "delete failed, will be repeated", "znode", r.path, "err", err)
	}
}

// isGone reports whether the answer to a delete says that the znode is gone.
func isGone(err error) bool { return err == nil || errors.Is(err, zk.ErrNoNode) }

// refusalLevel is the level of the record of a failure that is repeated: Error if somebody has to change a
// permission or the like before it succeeds.
func refusalLevel(err error) slog.Level {
	if zkutil.IsRefused(err) && !zkutil.IsUnknownAnswer(err) {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// hasOtherSessionThan reports whether the connection has another session than id.
func (s *Session) hasOtherSessionThan(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link.id != 0 && s.link.id != id
}

func notDeleted(limit time.Duration, why error) error {
	return fmt.Errorf("%w after %v, deletion goes on: %w", zkutil.ErrNodeNotDeleted, limit, why)
}
