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

// Watch is a watch on one znode, which all users of the session share, because zk.Conn can't remove a
// watch: ten thousand waiters that came and went would leave ten thousand channels behind.
type Watch struct {
	path  string
	fired chan struct{} // closed when the znode changed or went, or the watch is lost
	event zk.EventType  // what happened; set before fired is closed
	err   error         // of setting the watch; set before setDone is closed
	data  []byte        // of the znode, if the watch was set by a read; set before setDone is closed

	// Guarded by Session.mu.
	seenAt  time.Time     // when the znode was last known to be there
	setDone chan struct{} // closed once the server has answered; nil from then on, because a watch may stand for days
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

// Data returns the data that the znode had when the watch was set, nil if it was not set by a read.
func (w *Watch) Data() []byte { return w.data }

// IsGone reports whether an event has told that the znode was deleted.
func (w *Watch) IsGone() bool { return w.HasFired() && w.event == zk.EventNodeDeleted }

// Node is the content of a znode.
type Node struct {
	Data []byte
	Stat zk.Stat
}

// Watch returns a watch on the data of path, which has not fired when Watch is called. It sends a
// request only if the session has none yet. zk.ErrNoNode means that the znode does not exist.
func (s *Session) Watch(ctx context.Context, path string) (*Watch, error) {
	s.mu.Lock()
	w, isShared := s.watches[wire.WatchKey{Path: path, Kind: wire.WatchData}]
	s.mu.Unlock()
	if !isShared {
		_, w, err := s.readAndWatch(ctx, path)
		return w, err
	}
	return w, s.awaitWatch(ctx, w)
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
		}
	}
	return w.err
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
	call[Node]
	watch    *Watch
	isShared bool
}

func (s *Session) startWatchedRead(ctx context.Context, path string) (watchedRead, error) {
	t, err := s.enterGate(ctx, false)
	if err != nil {
		return watchedRead{}, err
	}
	key := wire.WatchKey{Path: path, Kind: wire.WatchData}
	w, isShared := s.findOrAddWatch(key)
	run := readNode(path)
	if !isShared {
		run = func(conn *zk.Conn) (Node, error) {
			data, stat, events, err := conn.GetW(path)
			err = zkutil.Denied(err, "read", path)
			w.data = data
			s.onWatchSet(key, w, events, err)
			if err != nil {
				return Node{}, err
			}
			return Node{data, *stat}, nil
		}
	}
	return watchedRead{startRequest(s, t, request[Node]{run: run}), w, isShared}, nil
}

// findOrAddWatch returns the watch of the session for key. If it is not shared it is new, and the
// caller has to set it.
func (s *Session) findOrAddWatch(key wire.WatchKey) (w *Watch, isShared bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, isShared = s.watches[key]
	if !isShared {
		w = &Watch{path: key.Path, fired: make(chan struct{}), setDone: make(chan struct{})}
		s.watches[key] = w
	}
	return w, isShared
}

// WatchArrival returns a watch that fires when a child of dir is created, or dir itself if it is
// missing.
func (s *Session) WatchArrival(ctx context.Context, dir string) (*Watch, error) {
	w, err := s.watchDir(ctx, wire.WatchKey{Path: dir, Kind: wire.WatchChildren})
	if errors.Is(err, zk.ErrNoNode) {
		return s.watchDir(ctx, wire.WatchKey{Path: dir, Kind: wire.WatchExists})
	}
	return w, err
}

// watchDir sets a watch on the children of a directory, or on its creation.
func (s *Session) watchDir(ctx context.Context, key wire.WatchKey) (*Watch, error) {
	t, err := s.enterGate(ctx, false)
	if err != nil {
		return nil, err
	}
	w, isShared := s.findOrAddWatch(key)
	_, err = runAdmitted(ctx, s, t, request[struct{}]{run: func(conn *zk.Conn) (struct{}, error) {
		var events <-chan zk.Event
		var err error
		switch {
		case isShared:
		case key.Kind == wire.WatchChildren:
			_, _, events, err = conn.ChildrenW(key.Path)
		default:
			var found bool
			found, _, events, err = conn.ExistsW(key.Path)
			if err == nil && found { // the watch is on the data of dir, not on its children
				err = zkutil.ErrStale
			}
		}
		err = zkutil.Denied(err, "list the children of", key.Path)
		if !isShared {
			s.onWatchSet(key, w, events, err)
		}
		return struct{}{}, err
	}})
	if err == nil {
		err = s.awaitWatch(ctx, w)
	}
	return w, err
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
	n, err := r.call.wait(ctx)
	if err == nil && r.isShared {
		err = r.s.awaitWatch(ctx, r.watch)
	}
	return n, r.watch, err
}

// readNode returns a request that reads a znode without a watch.
func readNode(path string) func(conn *zk.Conn) (Node, error) {
	return func(conn *zk.Conn) (Node, error) {
		data, stat, err := conn.Get(path)
		if err != nil {
			return Node{}, zkutil.Denied(err, "read", path)
		}
		return Node{data, *stat}, nil
	}
}

// onWatchSet records the server's answer to a request that sets a watch. On an adopted connection
// the event is read from zk.Conn's channel of that watch, because the channel of the
// connection may lose events.
func (s *Session) onWatchSet(key wire.WatchKey, w *Watch, events <-chan zk.Event, err error) {
	s.mu.Lock()
	w.err, w.seenAt = err, s.clock.now()
	close(w.setDone)
	w.setDone = nil
	if err != nil && s.watches[key] == w {
		delete(s.watches, key)
	}
	s.mu.Unlock()
	if err != nil || s.wire != nil {
		return
	}
	s.Background(func(ctx context.Context) {
		select {
		case event := <-events:
			s.fireWatches(key.Path, event.Type)
		case <-ctx.Done():
		}
	})
}

// fireWatches fires the watches on path that an event uses up, and ends the hold of a znode that is
// gone. A znode that is gone, or whose watch is lost, is not checked by heartbeats until it is read
// again. fireWatches is called from zk.Conn's event callback.
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
		}
	}
}

// Write sets the data of a znode of any version.
func (s *Session) Write(ctx context.Context, path string, data []byte) error {
	_, err := runRequest(ctx, s, request[struct{}]{isWrite: true, run: func(conn *zk.Conn) (struct{}, error) {
		_, err := conn.Set(path, data, -1)
		return struct{}{}, zkutil.Denied(err, "write", path)
	}})
	return err
}
