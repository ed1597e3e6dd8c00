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
	done chan struct{} // closed once the znode is known to be gone

	// Guarded by Session.mu.
	failure error // of the latest attempt
}

// beginRemovalLocked begins the guaranteed delete of a znode of this session. A delete by name can't
// hit the znode of another, because our names have a uuid.
func (s *Session) beginRemovalLocked(path string) *removal {
	r := &removal{done: make(chan struct{})}
	delete(s.live.nodes, path)
	s.cleanUpLocked(func(ctx context.Context) {
		if err := s.deleteUntilGone(ctx, path, func(err error) {
			s.mu.Lock()
			r.failure = err
			s.mu.Unlock()
		}); err == nil {
			close(r.done)
		}
	})
	return r
}

// beginRemoval is beginRemovalLocked for callers that don't hold s.mu.
func (s *Session) beginRemoval(path string) *removal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beginRemovalLocked(path)
}

// RemoveLater begins the guaranteed delete of a znode of this session, and notes it in the leftovers
// of ctx. done is closed once the server has confirmed that the znode is gone.
func (s *Session) RemoveLater(ctx context.Context, path string) (done <-chan struct{}) {
	removal := s.beginRemoval(path)
	trackDeletion(ctx, removal.done)
	return removal.done
}

// removeAndWait is the guaranteed delete within a task of the session.
func (s *Session) removeAndWait(ctx context.Context, path string) {
	_ = s.deleteUntilGone(ctx, path, func(error) {}) // logged there; only the end of the session stops it
}

// deleteUntilGone repeats the delete of path until it is gone, its session has expired, or ctx ends,
// whose error it returns. onFailure is called with the error of each attempt but the last.
func (s *Session) deleteUntilGone(ctx context.Context, path string, onFailure func(error)) error {
	s.mu.Lock()
	owner := s.link.id
	s.mu.Unlock()
	mayRepeat := func(err error) bool { return !errors.Is(err, zkutil.ErrClosed) && ctx.Err() == nil }
	_, err := zkutil.RepeatWhile(ctx, s.cfg.Retry.Patient(), mayRepeat, func() (struct{}, error) {
		_, err := runRequest(ctx, s, request[struct{}]{isWrite: true, isCleanUp: true, run: func(conn *zk.Conn) (struct{}, error) {
			return struct{}{}, zkutil.Denied(conn.Delete(path, -1), "delete children of", zkutil.ParentOf(path))
		}})
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return struct{}{}, nil
		}
		if (zkutil.IsRefused(err) || !zkutil.IsTransient(err)) && s.hasOtherSessionThan(owner) {
			return struct{}{}, nil // refused, but the server has removed the znode with its session
		}
		if ctx.Err() == nil {
			s.Log(slog.LevelWarn, "delete failed, will be repeated", "znode", path, "err", err)
		}
		onFailure(err)
		return struct{}{}, err
	})
	return err
}

// hasOtherSessionThan reports whether the connection has another session than id.
func (s *Session) hasOtherSessionThan(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link.id != 0 && s.link.id != id
}

// awaitGone returns nil once the znode is gone, and after limit why it is not.
func (r *removal) awaitGone(s *Session, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.done:
		return nil
	case <-s.life.open.Done():
		return zkutil.ErrClosed
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

func notDeleted(limit time.Duration, why error) error {
	return fmt.Errorf("%w after %v, deletion goes on: %w", zkutil.ErrNodeNotDeleted, limit, why)
}
