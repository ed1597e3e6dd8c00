package session

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Watch is a watch on one znode, which all users of the session share. On an own connection it fires when
// the connection is replaced, because it stands at the server of one connection.
type Watch struct {
	path  string
	kind  wire.WatchKind
	fired chan struct{} // closed when the znode changed or went, or the watch is lost
	event zk.EventType  // what happened; set before fired is closed
	err   error         // of setting the watch; set before setDone is closed

	// Of the znode, if the watch was set by a read; set before setDone is closed.
	data         []byte
	czxid, ctime int64
	changedBy    int64 // zxid of the latest change of the kind that the watch fires for; zero: it waits for the creation

	// Guarded by Session.mu.
	seenAt    time.Time     // when the watch was set, or a read last showed no change since
	checkedAt time.Time     // when the watch was set, or the leader last knew the znode
	setDone   chan struct{} // closed once the server has answered; nil from then on, because a watch may stand for days
	isFirst   bool          // the znode is, or was, a hold of this session that was granted as the first of its queue
	onFirst   chan struct{} // closed when isFirst is set; nil: nobody has asked for it
}

func (w *Watch) lastSeenAt() time.Time { return w.seenAt }

// lastCheckedAt is zero for a watch that no audit can check.
func (w *Watch) lastCheckedAt() time.Time {
	if w.kind != wire.WatchData {
		return time.Time{}
	}
	return w.checkedAt
}

// HasFired reports whether the channel of Fired is closed.
func (w *Watch) HasFired() bool {
	select {
	case <-w.fired:
		return true
	default:
		return false
	}
}

// Fired returns a channel that is closed when the znode has changed or gone, or the watch is lost.
func (w *Watch) Fired() <-chan struct{} { return w.fired }

// Node returns the znode as it was when the watch was set, with the czxid and the ctime of its stat. It is zero if
// the watch was not set by a read.
func (w *Watch) Node() Node { return Node{w.data, zk.Stat{Czxid: w.czxid, Ctime: w.ctime}} }

// TellsChange reports whether the watch has fired because of an event, not because it was lost.
func (w *Watch) TellsChange() bool { return w.HasFired() && w.event != zk.EventNotWatching }

// IsGone reports whether an event has told that the znode was deleted.
func (w *Watch) IsGone() bool { return w.HasFired() && w.event == zk.EventNodeDeleted }

// Watch returns a watch on the data of path, which has not fired when Watch is called. It sends a
// request only if the session has none yet. zk.ErrNoNode means that the znode does not exist.
func (s *Session) Watch(ctx context.Context, path string) (*Watch, error) {
	p, err := s.StartWatch(ctx, path)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

// PendingWatch is a Watch whose request was sent, if there had to be one.
type PendingWatch struct {
	s     *Session
	found *Watch // nil: read was sent
	read  watchedRead
}

// StartWatch is Watch without the wait for the answer.
func (s *Session) StartWatch(ctx context.Context, path string) (PendingWatch, error) {
	if w := s.findWatch(wire.WatchKey{Path: path, Kind: wire.WatchData}); w != nil {
		return PendingWatch{s: s, found: w}, nil
	}
	read, err := s.startWatchedRead(ctx, path)
	return PendingWatch{s: s, read: read}, err
}

// Wait returns the watch.
func (p PendingWatch) Wait(ctx context.Context) (*Watch, error) {
	if p.found != nil {
		return p.found, p.s.awaitWatch(ctx, p.found)
	}
	_, w, err := p.read.wait(ctx)
	return w, err
}

// StandingWatch returns the watch on the data of a contender's own znode that somebody else of the session has
// set, such as its successor, nil if there is none. Heartbeats check the znode from then on, as after a read.
func (s *Session) StandingWatch(path string) *Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[wire.WatchKey{Path: path, Kind: wire.WatchData}]
	if w == nil || w.setDone != nil { // or the server has not answered yet
		return nil
	}
	s.live.nodes[path] = struct{}{}
	return w
}

// findWatch returns the watch of the session for key, nil if there is none.
func (s *Session) findWatch(key wire.WatchKey) *Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[key]
}

// awaitWatch blocks until the server has answered whether the watch is set.
func (s *Session) awaitWatch(ctx context.Context, w *Watch) error {
	s.mu.Lock()
	setDone := w.setDone
	s.mu.Unlock()
	if setDone != nil {
		select {
		case <-setDone:
		case <-ctx.Done():
			return zkutil.Interrupted(ctx, nil)
		case <-s.life.open.Done():
			return zkutil.ErrClosed
		}
	}
	return w.err
}

// watchKey is the key of the watch that a call sets.
func (c *call) watchKey() wire.WatchKey {
	switch c.Op {
	case proto.OpGetChildren2:
		return wire.WatchKey{Path: c.Path, Kind: wire.WatchChildren}
	case proto.OpExists:
		return wire.WatchKey{Path: c.Path, Kind: wire.WatchExists}
	default:
		return wire.WatchKey{Path: c.Path, Kind: wire.WatchData}
	}
}

// attachWatch has a call set a watch, unless the session has it already: then it returns that one.
func (s *Session) attachWatch(c *call) (shared *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := c.watchKey()
	if shared, isShared := s.watches[key]; isShared {
		return shared
	}
	c.watch = &Watch{path: key.Path, kind: key.Kind, fired: make(chan struct{}), setDone: make(chan struct{})}
	c.IsWatch = true
	if hold := s.holds[key.Path]; hold != nil && hold.isFirst {
		c.watch.noteFirstLocked()
	}
	s.watches[key] = c.watch
	return nil
}

// WatchArrival returns a watch that fires when a child of dir is created, or dir itself if it is
// missing.
func (s *Session) WatchArrival(ctx context.Context, dir string) (*Watch, error) {
	w, err := s.watchDir(ctx, proto.OpGetChildren2, dir)
	if errors.Is(err, zk.ErrNoNode) {
		return s.watchDir(ctx, proto.OpExists, dir)
	}
	return w, err
}

// watchDir sets a watch on the children of a directory, or on its creation.
func (s *Session) watchDir(ctx context.Context, op int32, dir string) (*Watch, error) {
	c := &call{Request: wire.Request{Op: op, Path: dir}, what: "list the children of", where: dir}
	if w := s.findWatch(c.watchKey()); w != nil {
		return w, s.awaitWatch(ctx, w)
	}
	t, err := s.enterGate(ctx, 1, false)
	if err != nil {
		return nil, err
	}
	shared := s.attachWatch(c)
	s.sendAdmitted(t, c)
	_, err = c.wait(ctx)
	if shared != nil { // somebody has just set it
		return shared, s.awaitWatch(ctx, shared)
	}
	return c.watch, err
}

// watchError returns why a call has set no watch, from the error of its answer. A call that asks for the
// creation of a znode has to find none: otherwise its watch is on the data of the znode.
func (c *call) watchError(err error) error {
	switch {
	case c.Op != proto.OpExists:
		return err
	case err == nil:
		return zkutil.ErrStale
	case errors.Is(err, zk.ErrNoNode):
		return nil
	default:
		return err
	}
}

// onWatchSetLocked records the server's answer to a request that sets a watch. On an adopted connection
// the event is read from zk.Conn's channel of that watch, because the channel of the
// connection may lose events.
func (s *Session) onWatchSetLocked(c *call, a wire.Answer) {
	w, key := c.watch, c.watchKey()
	w.err, w.data, w.seenAt = a.Err, a.Data, s.clock.now()
	w.checkedAt = w.seenAt
	w.czxid, w.ctime, w.changedBy = a.Stat.Czxid, a.Stat.Ctime, w.latestChange(a)
	close(w.setDone)
	w.setDone = nil
	if a.Err != nil && s.watches[key] == w {
		delete(s.watches, key)
	}
	if a.Err != nil || a.Events == nil {
		return
	}
	s.backgroundLocked(func(ctx context.Context) {
		select {
		case event := <-a.Events:
			s.fireWatches(key.Path, event.Type)
		case <-ctx.Done():
		}
	})
}

// fireWatches fires the watches on path that an event uses up, and ends the hold of a znode that is
// gone. A znode that is gone, or whose watch is lost, is not checked by heartbeats until it is read
// again. fireWatches is called by the reader of a connection, partly from zk.Conn's event callback.
func (s *Session) fireWatches(path string, event zk.EventType) {
	kinds := wire.FiredBy(int32(event))
	if event == zk.EventNotWatching {
		kinds = wire.FiredBy(proto.EventDeleted)
	}
	isDeleted := event == zk.EventNodeDeleted
	s.mu.Lock()
	defer s.mu.Unlock()
	if isDeleted || event == zk.EventNotWatching {
		delete(s.live.nodes, path)
	}
	if hold := s.holds[path]; isDeleted && hold != nil {
		hold.endAsDeletedLocked()
	}
	for _, kind := range kinds {
		key := wire.WatchKey{Path: path, Kind: kind}
		if w, ok := s.watches[key]; ok {
			delete(s.watches, key)
			w.event = event
			close(w.fired)
			if kind == wire.WatchData {
				s.alone.forget(path)
			}
		}
	}
}

// loseWatchesLocked fires all watches: they stood at the server of another connection.
func (s *Session) loseWatchesLocked() {
	s.alone.clear()
	for key, w := range s.watches {
		delete(s.watches, key)
		w.event = zk.EventNotWatching
		close(w.fired)
	}
}
