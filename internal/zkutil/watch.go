package zkutil

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Watch is a watch on one znode, shared by everyone in the session who wants to know:
// zk.Conn can't remove a watch, so ten thousand waiters that came and went must not
// leave ten thousand channels behind.
type Watch struct {
	path  string
	fired chan struct{} // closed when the znode changed or went, or the watch is lost
	event zk.EventType  // what happened; set before fired is closed
	err   error         // of setting the watch; set before ready is closed
	data  []byte        // of the znode, when the watch was set by reading it; set before ready is closed

	// Guarded by Session.mu.
	seen  time.Time     // when the znode was known to be there
	ready chan struct{} // closed once the server has answered; nil from then on, because a watch may stand for days
}

func (w *Watch) hasFired() bool {
	select {
	case <-w.fired:
		return true
	default:
		return false
	}
}

// gone reports whether the watched znode has been deleted.
func (w *Watch) gone() bool { return w.hasFired() && w.event == zk.EventNodeDeleted }

// node is what a read of a znode gives.
type node struct {
	data []byte
	stat zk.Stat
}

// watch returns a live watch on the data of path. It costs a request only if the
// session has none yet. ErrNoNode means that there is nothing to watch.
func (s *Session) watch(ctx context.Context, path string) (*Watch, error) {
	s.mu.Lock()
	w, shared := s.watches[watchKey{path, watchData}]
	s.mu.Unlock()
	if !shared {
		_, w, err := s.readWatch(ctx, path)
		return w, err
	}
	return w, s.awaitWatch(ctx, w)
}

// awaitWatch blocks until the server has said whether the watch stands.
func (s *Session) awaitWatch(ctx context.Context, w *Watch) error {
	s.mu.Lock()
	ready := w.ready
	s.mu.Unlock()
	if ready != nil {
		select {
		case <-ready:
		case <-ctx.Done():
			return interrupted(ctx, nil)
		}
	}
	return w.err
}

// readWatch reads path and makes sure that a watch stands from that read on.
func (s *Session) readWatch(ctx context.Context, path string) (node, *Watch, error) {
	r, err := s.startRead(ctx, path)
	if err != nil {
		return node{}, nil, err
	}
	return r.wait(ctx)
}

// watchedRead is a readWatch on its way.
type watchedRead struct {
	call[node]
	watch  *Watch
	shared bool
}

func (s *Session) startRead(ctx context.Context, path string) (watchedRead, error) {
	t, err := s.enter(ctx, false)
	if err != nil {
		return watchedRead{}, err
	}
	key := watchKey{path, watchData}
	w, shared := s.sharedWatch(key)
	run := get(path)
	if !shared {
		run = func(conn *zk.Conn) (node, error) {
			data, stat, events, err := conn.GetW(path)
			err = denied(err, "read", path)
			w.data = data
			s.armed(key, w, events, err)
			if err != nil {
				return node{}, err
			}
			return node{data, *stat}, nil
		}
	}
	return watchedRead{start(s, t, request[node]{run: run}), w, shared}, nil
}

// sharedWatch returns the watch that the session has; not shared: it is new, and the
// caller sets it.
func (s *Session) sharedWatch(key watchKey) (w *Watch, shared bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, shared = s.watches[key]
	if !shared {
		w = &Watch{path: key.path, fired: make(chan struct{}), ready: make(chan struct{})}
		s.watches[key] = w
	}
	return w, shared
}

// watchArrival returns a watch that fires when a child is made below dir, or dir itself
// where it is missing.
func (s *Session) watchArrival(ctx context.Context, dir string) (*Watch, error) {
	w, err := s.watchDir(ctx, watchKey{dir, watchChildren})
	if errors.Is(err, zk.ErrNoNode) {
		return s.watchDir(ctx, watchKey{dir, watchExists})
	}
	return w, err
}

func (s *Session) watchDir(ctx context.Context, key watchKey) (*Watch, error) {
	t, err := s.enter(ctx, false)
	if err != nil {
		return nil, err
	}
	w, shared := s.sharedWatch(key)
	_, err = launch(ctx, s, t, request[struct{}]{run: func(conn *zk.Conn) (struct{}, error) {
		var events <-chan zk.Event
		var err error
		switch {
		case shared:
		case key.kind == watchChildren:
			_, _, events, err = conn.ChildrenW(key.path)
		default:
			var found bool
			found, _, events, err = conn.ExistsW(key.path)
			if err == nil && found { // then it is no watch for children
				err = errStale
			}
		}
		err = denied(err, "list the children of", key.path)
		if !shared {
			s.armed(key, w, events, err)
		}
		return struct{}{}, err
	}})
	if err == nil {
		err = s.awaitWatch(ctx, w)
	}
	return w, err
}

func (r watchedRead) wait(ctx context.Context) (node, *Watch, error) {
	n, err := r.call.wait(ctx)
	if err == nil && r.shared {
		err = r.s.awaitWatch(ctx, r.watch)
	}
	return n, r.watch, err
}

// get reads a znode without a watch.
func get(path string) func(conn *zk.Conn) (node, error) {
	return func(conn *zk.Conn) (node, error) {
		data, stat, err := conn.Get(path)
		if err != nil {
			return node{}, denied(err, "read", path)
		}
		return node{data, *stat}, nil
	}
}

// armed settles a registry entry once the server has answered. On an adopted
// connection events come from the watch's own channel, for nothing tells whether
// the connection's channel has lost any.
func (s *Session) armed(key watchKey, w *Watch, events <-chan zk.Event, err error) {
	s.mu.Lock()
	w.err, w.seen = err, s.clock.now()
	close(w.ready)
	w.ready = nil
	if err != nil && s.watches[key] == w {
		delete(s.watches, key)
	}
	s.mu.Unlock()
	if err != nil || s.wire != nil {
		return
	}
	s.background(func(ctx context.Context) {
		select {
		case event := <-events:
			s.fire(key.path, event.Type)
		case <-ctx.Done():
		}
	})
}

// fire ends the watches on path that an event uses up, and the hold of a znode that is
// gone. A znode that is gone, or that nothing is heard of, serves no heartbeat until it has
// been read again. It is called from zk.Conn's event callback.
func (s *Session) fire(path string, event zk.EventType) {
	kinds := firedBy(int32(event))
	if event == zk.EventNotWatching {
		kinds = firedBy(proto.EventDeleted)
	}
	deleted := event == zk.EventNodeDeleted
	s.mu.Lock()
	defer s.mu.Unlock()
	if deleted || event == zk.EventNotWatching {
		delete(s.nodes, path)
	}
	if hold := s.holds[path]; deleted && hold != nil {
		hold.deletedLocked()
	}
	for _, kind := range kinds {
		key := watchKey{path, kind}
		if w, ok := s.watches[key]; ok {
			delete(s.watches, key)
			w.event = event
			close(w.fired)
		}
	}
}
