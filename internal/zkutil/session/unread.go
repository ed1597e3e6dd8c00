package session

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// A contender of another program may have an ACL by which nobody else may read its znode. It is in
// the queue all the same. A watch does not help: servers set one with exists, which needs no
// permission, but send no event to a session that may not read the znode (since 3.8.4 and 3.9.2).
// So the queue is listed again by the clock.

// unreadPause is the time between two listings of a queue because of a znode that may not be read.
const unreadPause = time.Second

// isUnreadable reports whether a server has refused to show a znode that exists. A request for a
// missing znode is answered with zk.ErrNoNode, whatever the permissions.
func isUnreadable(err error) bool { return errors.Is(err, zk.ErrNoAuth) }

// ReadPeer reads the znode of another contender, without a watch. For a znode that may not be read it
// returns the stat alone, or the zero Node if that is refused too.
func (s *Session) ReadPeer(ctx context.Context, path string) (Node, error) {
	n, err := s.readNode(ctx, path)
	if isUnreadable(err) {
		return s.readStat(ctx, path)
	}
	return n, err
}

func (s *Session) readStat(ctx context.Context, path string) (Node, error) {
	a, err := s.run(ctx, &call{Request: wire.Request{Op: proto.OpExists, Path: path}, what: "read", where: path})
	if isUnreadable(err) {
		return Node{}, nil
	}
	return Node{Stat: a.Stat}, err
}

// WaitPeer is Wait for the znode of another contender. For a znode that may not be read it returns a watch that
// fires after a pause.
func (p PendingWatch) WaitPeer(ctx context.Context) (*Watch, error) {
	w, err := p.Wait(ctx)
	if isUnreadable(err) {
		return p.s.watchByClock(), nil
	}
	return w, err
}

// ReadWatchPeer reads like ReadPeer, and returns a watch like that of WaitPeer, which stands from that
// read on.
func (s *Session) ReadWatchPeer(ctx context.Context, path string) (Node, *Watch, error) {
	n, w, err := s.readAndWatch(ctx, path)
	if isUnreadable(err) {
		n, err = s.readStat(ctx, path)
		return n, s.watchByClock(), err
	}
	return n, w, err
}

// watchByClock returns a watch that fires after a pause.
func (s *Session) watchByClock() *Watch {
	w := &Watch{fired: make(chan struct{})}
	s.Background(func(ctx context.Context) {
		timer := time.NewTimer(unreadPause)
		defer timer.Stop()
		select {
		case <-timer.C:
			close(w.fired)
		case <-ctx.Done(): // the waits have ended too
		}
	})
	return w
}
