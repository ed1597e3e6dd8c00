package zkutil

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
)

// removal is a guaranteed delete: it goes on in the background until the server
// has confirmed that the znode is gone, or the session is closed.
type removal struct {
	done chan struct{} // closed once the znode is known to be gone

	// Guarded by Session.mu.
	failure error // of the latest attempt
}

// removeLocked starts the guaranteed delete of one of our znodes. Our names carry a
// uuid, so deleting by name can't hit another's. Called under s.mu.
func (s *Session) removeLocked(path string) *removal {
	r := &removal{done: make(chan struct{})}
	delete(s.nodes, path)
	s.tidyLocked(func(ctx context.Context) {
		if err := s.delete(ctx, path, func(err error) {
			s.mu.Lock()
			r.failure = err
			s.mu.Unlock()
		}); err == nil {
			close(r.done)
		}
	})
	return r
}

// remove is removeLocked for callers that don't hold s.mu.
func (s *Session) remove(path string) *removal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removeLocked(path)
}

// removeNow is remove within a task of the session.
func (s *Session) removeNow(ctx context.Context, path string) {
	_ = s.delete(ctx, path, func(error) {}) // logged there; only the end of the session stops it
}

// delete deletes path until it is gone, whatever it takes, or until the session
// that owns it is over; failed is told of every attempt that was not the last. The
// error is that of ctx.
func (s *Session) delete(ctx context.Context, path string, failed func(error)) error {
	s.mu.Lock()
	owner := s.id
	s.mu.Unlock()
	again := func(err error) bool { return !errors.Is(err, ErrClosed) && ctx.Err() == nil }
	_, err := retry(ctx, s.cfg.Retry.patient(), again, func() (struct{}, error) {
		_, err := do(ctx, s, request[struct{}]{write: true, cleanup: true, run: func(conn *zk.Conn) (struct{}, error) {
			return struct{}{}, denied(conn.Delete(path, -1), "delete children of", parentOf(path))
		}})
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return struct{}{}, nil
		}
		if (refused(err) || !transient(err)) && s.replaced(owner) {
			return struct{}{}, nil // refused, but the server has removed it with its session
		}
		if ctx.Err() == nil {
			s.log(slog.LevelWarn, "delete failed, will be repeated", "znode", path, "err", err)
		}
		failed(err)
		return struct{}{}, err
	})
	return err
}

// replaced reports whether another session has taken the place of session id.
func (s *Session) replaced(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id != 0 && s.id != id
}

// wait returns nil once the znode is gone, or what is in the way after limit.
func (r *removal) wait(s *Session, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.done:
		return nil
	case <-s.done:
		return ErrClosed
	case <-timer.C:
	}
	s.mu.Lock()
	failure := r.failure
	s.mu.Unlock()
	if failure == nil {
		failure = s.unavailable()
	}
	return notDeleted(limit, failure)
}

func notDeleted(limit time.Duration, why error) error {
	return fmt.Errorf("%w after %v, deletion goes on: %w", ErrNodeNotDeleted, limit, why)
}
