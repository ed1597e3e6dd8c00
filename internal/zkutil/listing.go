package zkutil

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// listing is one reading of a queue, shared by everyone who asked before it began.
// A thousand waiters in one session, all of whom have to look again after a
// reconnect, cost one or two listings of a thousand children, not a thousand.
type listing struct {
	done  chan struct{}
	queue []Contender // read-only; set before done is closed, as err is
	err   error
}

// listerKey tells listings apart: queues with other markers see other contenders.
type listerKey struct{ dir, prefix string }

// list returns the queue as it was at some moment after the call.
func (q *Queue) list(ctx context.Context) ([]Contender, error) {
	s, key := q.Session, listerKey{q.Dir, q.Prefix}
	s.mu.Lock()
	shared, busy := s.listers[key]
	if !busy {
		s.listers[key] = nil
		s.mu.Unlock()
		defer q.listNext(key)
		return q.listOnce(ctx)
	}
	if shared == nil {
		shared = &listing{done: make(chan struct{})}
		s.listers[key] = shared
	}
	s.mu.Unlock()
	select {
	case <-shared.done:
		return shared.queue, shared.err
	case <-ctx.Done():
		return nil, interrupted(ctx, nil)
	}
}

func (q *Queue) listOnce(ctx context.Context) ([]Contender, error) {
	children, err := do(ctx, q.Session, request[[]string]{run: func(conn *zk.Conn) ([]string, error) {
		children, _, err := conn.Children(q.Dir)
		return children, denied(err, "list the children of", q.Dir)
	}})
	return contenders(children, q.Markers), err
}

// listNext begins the listing that was asked for during the last one, if any.
func (q *Queue) listNext(key listerKey) {
	s := q.Session
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := s.listers[key]
	if shared == nil {
		delete(s.listers, key)
		return
	}
	s.listers[key] = nil
	if !s.backgroundLocked(func(ctx context.Context) {
		shared.queue, shared.err = q.listOnce(ctx)
		if ctx.Err() != nil {
			shared.err = ErrClosed // nobody's own context
		}
		close(shared.done)
		q.listNext(key)
	}) {
		shared.err = ErrClosed
		close(shared.done)
		delete(s.listers, key)
	}
}
