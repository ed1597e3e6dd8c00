package session

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// A znode that is the first of its queue stays the first as long as it is there, because later znodes have higher numbers.
// So once a hold of this session was the first, all contenders that were ahead of it are known to be gone, without a list.

// IsFirst reports whether the znode that is watched is, or was, a hold of this session that was the first of its
// queue. Once it was, nothing can be ahead of it.
func (s *Session) IsFirst(w *Watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.isFirst
}

// OnFirst returns a channel that is closed when IsFirst is true.
func (s *Session) OnFirst(w *Watch) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.onFirst == nil {
		w.onFirst = make(chan struct{})
		if w.isFirst {
			close(w.onFirst)
		}
	}
	return w.onFirst
}

// noteFirstLocked is called when a contender of ours has become a hold that is the first of its queue.
func (s *Session) noteFirstLocked(path string) {
	if w := s.watches[wire.WatchKey{Path: path, Kind: wire.WatchData}]; w != nil {
		w.noteFirstLocked()
	}
	s.budget.noteFirst(path)
}

func (w *Watch) noteFirstLocked() {
	if !w.isFirst && w.onFirst != nil {
		close(w.onFirst)
	}
	w.isFirst = true
}

// LatestFirst returns the name of the latest hold of this session in a directory that was granted as the first of its
// queue, "" if that is not known. It is known for as long as this session has contenders there, or attempts under way. The hold may
// be one of an earlier session of zk.Conn: it was the first all the same.
func (s *Session) LatestFirst(dir string) string {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.rooms[dir]; r != nil {
		return r.first
	}
	return ""
}

// noteFirst notes the name for its directory, unless the znode is gone already. The permits of a semaphore count in the room of
// their turn, but are in another directory: their names are not noted, so that the name of the turn stays known.
func (b *budget) noteFirst(path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.nodes[path]
	if c == nil {
		return
	}
	if dir, name := zkutil.Split(path); dir == c.place.room.dir {
		c.place.room.first = name
	}
}

// enoughLost is after how many lost answers in a row the server is taken for one that does not know the request of FindEach.
const enoughLost = 2

// CanFindEach reports whether FindEach may be called. Servers before 3.6 don't know its request, say so, and end the
// connection. The session does not ask again then, or after enoughLost connections that have ended before the answer. Where a hold
// ends with the connection it never asks.
func (s *Session) CanFindEach() bool {
	return s.wire != nil && !s.cfg.SuspendEnds && s.multiReadsLost.Load() < enoughLost
}

// FindEach asks in one request which of several znodes are there. The result has for each path why the server has refused it,
// such as zk.ErrNoNode, and nil for a znode that is there and may be read. The request lists the children of the znodes:
// ephemeral znodes have none, while their data may be long.
func (s *Session) FindEach(ctx context.Context, paths []string) ([]error, error) {
	lost := s.multiReadsLost.Load()
	a, err := s.run(ctx, &call{Request: wire.Request{Op: proto.OpMultiRead, Reads: paths}, what: "read", where: paths[0]})
	switch {
	case ctx.Err() != nil:
	case zkutil.IsUnimplemented(err):
		s.multiReadsLost.Store(enoughLost)
	case zkutil.IsUnanswered(err):
		s.multiReadsLost.CompareAndSwap(lost, lost+1) // once for all that one connection has lost
	case err == nil: // not if it was not sent
		s.multiReadsLost.Store(0)
	}
	return a.Reads, err
}
