package session

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Node is the content of a znode.
type Node struct {
	Data []byte
	Stat zk.Stat
}

// readAndWatch reads the znode at path, and returns a watch that stands from that read on.
func (s *Session) readAndWatch(ctx context.Context, path string) (Node, *Watch, error) {
	r, err := s.startWatchedRead(ctx, path)
	if err != nil {
		return Node{}, nil, err
	}
	return r.wait(ctx)
}

// watchedRead is a readAndWatch that was sent.
type watchedRead struct {
	*call

	shared *Watch // the watch of another call; nil: this call sets one
}

func (s *Session) startWatchedRead(ctx context.Context, path string) (watchedRead, error) {
	return s.startWatched(ctx, readCall(path))
}

// startWatched sends a request that reads, and sets a watch unless the session has it already.
func (s *Session) startWatched(ctx context.Context, c *call) (watchedRead, error) {
	t, err := s.enterGate(ctx, 1, false)
	if err != nil {
		return watchedRead{}, err
	}
	r := watchedRead{call: c}
	r.shared = s.attachWatch(r.call)
	s.sendAdmitted(t, r.call)
	return r, nil
}

// OwnRead is a read of a contender's own znode that was sent.
type OwnRead struct{ watchedRead }

// StartReadOwn sends a read of a contender's own znode.
func (s *Session) StartReadOwn(ctx context.Context, path string) (*OwnRead, error) {
	r, err := s.startWatchedRead(ctx, path)
	return &OwnRead{r}, err
}

// Wait returns the znode, and a watch that stands from that read on. From then on heartbeats check
// the znode: a znode that can be read can be checked.
func (r *OwnRead) Wait(ctx context.Context) (Node, *Watch, error) {
	n, own, err := r.wait(ctx)
	if err == nil {
		r.s.mu.Lock()
		r.s.live.nodes[own.path] = struct{}{}
		r.s.mu.Unlock()
	}
	return n, own, err
}

func (r watchedRead) wait(ctx context.Context) (Node, *Watch, error) {
	a, w, err := r.waitAnswer(ctx)
	return Node{a.Data, a.Stat}, w, err
}

func (r watchedRead) waitAnswer(ctx context.Context) (wire.Answer, *Watch, error) {
	a, err := r.call.wait(ctx)
	w := r.watch
	if r.shared != nil {
		w = r.shared
		if err == nil {
			err = r.s.awaitWatch(ctx, w)
		}
	}
	return a, w, err
}

// readNode reads a znode without a watch.
func (s *Session) readNode(ctx context.Context, path string) (Node, error) {
	a, err := s.run(ctx, readCall(path))
	return Node{a.Data, a.Stat}, err
}
