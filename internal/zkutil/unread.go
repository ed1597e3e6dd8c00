package zkutil

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

// Contenders of other programs may have an ACL that lets nobody else read them. They are in
// the queue all the same. No watch helps there: a server that lets us set one with exists,
// for which most want no permission, keeps its event back from those who may not read the
// znode (since 3.8.4 and 3.9.2), and the watch can't be removed. So the queue is listed again
// by the clock.

// unreadPause is the time between two looks at a queue because of a znode that may not be read.
const unreadPause = time.Second

// isUnreadable reports whether a server has refused to show a znode that exists: a missing one
// is answered with ErrNoNode, whatever the permissions.
func isUnreadable(err error) bool { return errors.Is(err, zk.ErrNoAuth) }

// readPeer reads a contender's znode without a watch. Of one that may not be read it returns
// the stat without data, or nothing at all.
func (s *Session) readPeer(ctx context.Context, path string) (node, error) {
	n, err := do(ctx, s, request[node]{run: get(path)})
	if isUnreadable(err) {
		return s.readStat(ctx, path)
	}
	return n, err
}

func (s *Session) readStat(ctx context.Context, path string) (node, error) {
	n, err := do(ctx, s, request[node]{run: func(conn *zk.Conn) (node, error) {
		found, stat, err := conn.Exists(path)
		switch {
		case err != nil:
			return node{}, denied(err, "read", path)
		case !found:
			return node{}, zk.ErrNoNode
		}
		return node{stat: *stat}, nil
	}})
	if isUnreadable(err) {
		return node{}, nil
	}
	return n, err
}

// watchPeer returns a live watch on a contender's znode: see Session.watch. On one that may
// not be read it fires after a pause.
func (s *Session) watchPeer(ctx context.Context, path string) (*Watch, error) {
	w, err := s.watch(ctx, path)
	if isUnreadable(err) {
		return s.watchClock(), nil
	}
	return w, err
}

// readWatchPeer is readPeer with a watch as of watchPeer from that read on.
func (s *Session) readWatchPeer(ctx context.Context, path string) (node, *Watch, error) {
	n, w, err := s.readWatch(ctx, path)
	if isUnreadable(err) {
		n, err = s.readStat(ctx, path)
		return n, s.watchClock(), err
	}
	return n, w, err
}

// watchClock returns a watch that fires after a pause.
func (s *Session) watchClock() *Watch {
	w := &Watch{fired: make(chan struct{})}
	s.background(func(ctx context.Context) {
		timer := time.NewTimer(unreadPause)
		defer timer.Stop()
		select {
		case <-timer.C:
			close(w.fired)
		case <-ctx.Done(): // so have those who wait
		}
	})
	return w
}
