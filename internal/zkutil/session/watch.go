package session

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/ops"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// watches are the session's watches at its server. Guarded by Session.mu.
type watches struct {
	s     *Session
	byKey map[wire.WatchKey]*Watch

	doubted map[*Watch]time.Time // when a user doubted that the znode exists; the leader has not confirmed it since
}

// Watch is a watch on one znode, shared by all users of the session. A Watch fires when the connection is
// replaced, because the server of one connection keeps the watch.
type Watch struct {
	path  string
	kind  core.WatchKind
	fired chan struct{} // closed when the znode changes or is deleted, or the watch is lost
	event zk.EventType  // the event; set before fired is closed
	err   error         // of setting the watch; set before setDone is closed

	// Of the znode, if the watch was set by a read; set before setDone is closed.
	data         []byte
	czxid, ctime int64
	owner        int64 // the session of an ephemeral znode, else 0

	// Guarded by Session.mu. IsSet and Zxid of core are set before setDone is closed, and do not change afterwards.
	core       core.Watch
	isRetained bool // the session counts as in use until the watch is removed: see settleLocked

	seenAt    time.Time     // when the watch was set, or a read last showed no change since
	checkedAt time.Time     // when the watch was set, or the leader last confirmed the znode
	setDone   chan struct{} // closed once the server answers; nil from then on, because a watch may stand for days
	isFirst   bool          // the znode is, or was, a hold of this session that was granted as the first of its queue
	onFirst   chan struct{} // closed when isFirst is set; nil until the channel is asked for
}

func (w *Watch) lastSeenAt() time.Time { return w.seenAt }

// lastCheckedAt returns checkedAt, zero for a watch that no audit can check.
func (w *Watch) lastCheckedAt() time.Time {
	if w.kind != core.WatchData {
		return time.Time{}
	}
	return w.checkedAt
}

// HasFired reports whether the channel of Fired is closed.
func (w *Watch) HasFired() bool { return zkutil.IsClosed(w.fired) }

// Fired returns a channel that is closed when the znode changes or is deleted, or the watch is lost.
func (w *Watch) Fired() <-chan struct{} { return w.fired }

// Node returns the znode at the time when the watch was set, with the czxid, the ctime and the owner of its
// stat. The Node is zero if the watch was not set by a read.
func (w *Watch) Node() Node {
	return Node{w.data, zk.Stat{Czxid: w.czxid, Ctime: w.ctime, EphemeralOwner: w.owner}}
}

// TellsChange reports whether the watch fired because of an event, not because the watch was lost.
func (w *Watch) TellsChange() bool { return w.HasFired() && w.event != zk.EventNotWatching }

// IsGone reports whether an event reported the znode as deleted.
func (w *Watch) IsGone() bool { return w.HasFired() && w.event == zk.EventNodeDeleted }

// PendingWatch is a watch on the data of a znode whose request, if needed, was sent.
type PendingWatch struct {
	s     *Session
	found *Watch // nil: read was sent
	read  watchedRead
}

// StartWatch begins to watch the data of path. It sends a request only if the session has no such watch yet. The caller has to call
// Wait, WaitPeer or Abandon.
func (s *Session) StartWatch(ctx context.Context, path string) (PendingWatch, error) {
	if w := s.watches.find(wire.WatchKey{Path: path, Kind: core.WatchData}); w != nil {
		return PendingWatch{s: s, found: w}, nil
	}
	read, err := s.watches.start(ctx, readCall(path))
	return PendingWatch{s: s, read: read}, err
}

// Wait returns the watch, which the caller has to release. zk.ErrNoNode means that the znode does not exist.
func (p PendingWatch) Wait(ctx context.Context) (*Watch, error) {
	if p.found != nil {
		return p.s.watches.awaitUsed(ctx, p.found)
	}
	_, w, err := p.read.wait(ctx)
	return w, err
}

// Abandon replaces Wait for a caller that no longer needs the watch.
func (p PendingWatch) Abandon() {
	if p.found != nil {
		p.s.ReleaseWatch(p.found)
		return
	}
	p.read.abandon()
}

// StandingWatch returns the watch on the data of a contender's own znode set by another user of the session,
// such as the contender's successor, nil if none. Heartbeats check the znode from then on, as after a read.
func (s *Session) StandingWatch(path string) *Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches.byKey[wire.WatchKey{Path: path, Kind: core.WatchData}]
	if w == nil || w.setDone != nil { // or the server did not answer yet
		return nil
	}
	if !s.watches.joinLocked(w) {
		return nil
	}
	s.keeper.nodes[path] = struct{}{}
	return w
}

// find returns the session's watch for key, nil if none. The caller has to release the watch.
func (ws *watches) find(key wire.WatchKey) *Watch {
	s := ws.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := ws.byKey[key]; w != nil && ws.joinLocked(w) {
		return w
	}
	return nil
}

// awaitUsed is await for a watch returned by find. On failure awaitUsed releases the watch.
func (ws *watches) awaitUsed(ctx context.Context, w *Watch) (*Watch, error) {
	if err := ws.await(ctx, w); err != nil {
		ws.s.ReleaseWatch(w)
		return nil, err
	}
	return w, nil
}

// await blocks until the server answers whether the watch is set.
func (ws *watches) await(ctx context.Context, w *Watch) error {
	s := ws.s
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

// watchKey returns the key of the watch that a call sets.
func (c *call) watchKey() wire.WatchKey {
	switch c.Op {
	case proto.OpGetChildren2:
		return wire.WatchKey{Path: c.Path, Kind: core.WatchChildren}
	case proto.OpExists:
		return wire.WatchKey{Path: c.Path, Kind: core.WatchExists}
	default:
		return wire.WatchKey{Path: c.Path, Kind: core.WatchData}
	}
}

// attach has a call set a watch, unless the session already has the watch: then attach returns the existing
// one. A watch being removed is not usable. The caller has to repeat the call.
func (ws *watches) attach(c *call) (w *Watch, isShared, isUsable bool) {
	s := ws.s
	s.mu.Lock()
	defer s.mu.Unlock()
	key := c.watchKey()
	if shared, isShared := ws.byKey[key]; isShared {
		return shared, true, ws.joinLocked(shared)
	}
	w = &Watch{path: key.Path, kind: key.Kind, core: core.NewWatch(), fired: make(chan struct{}), setDone: make(chan struct{})}
	c.taker, c.IsWatch = w, true
	if hold := s.holds.byPath[key.Path]; hold != nil && hold.isFirst {
		w.noteFirstLocked()
	}
	ws.byKey[key] = w
	return w, false, true
}

// WatchArrival returns a watch that fires when a child of dir is created, or, if dir is missing, when dir is
// created. The caller has to release the watch. The error is ErrStale if dir was created between the requests again and again.
func (s *Session) WatchArrival(ctx context.Context, dir string) (*Watch, error) {
	const rounds = 3 // dir may be created between the two requests of a round
	for round := 1; ; round++ {
		w, err := s.watches.watchDir(ctx, proto.OpGetChildren2, dir)
		if errors.Is(err, zk.ErrNoNode) {
			w, err = s.watches.watchDir(ctx, proto.OpExists, dir)
		}
		if !errors.Is(err, zkutil.ErrStale) || round == rounds {
			return w, err
		}
	}
}

// watchDir sets a watch on the children of a directory, or on its creation.
func (ws *watches) watchDir(ctx context.Context, op int32, dir string) (*Watch, error) {
	s := ws.s
	for {
		c := &call{Request: wire.Request{Op: op, Path: dir}}
		if w := ws.find(c.watchKey()); w != nil {
			return ws.awaitUsed(ctx, w)
		}
		t, err := s.gate.enter(ctx, 1, false, false)
		if err != nil {
			return nil, err
		}
		w, isShared, isUsable := ws.attach(c)
		s.gate.sendAdmitted(t, c)
		if _, err = c.wait(ctx); !isShared {
			if err = c.watchError(err); err != nil {
				s.ReleaseWatch(w)
				return nil, err
			}
			return w, nil
		}
		if isUsable { // another caller has just set the watch
			return ws.awaitUsed(ctx, w)
		}
	}
}

// watchError returns why a call has set no watch, from the error of the answer. A call that waits for the
// creation of a znode has to find none: otherwise the watch is on the data of the znode.
func (c *call) watchError(err error) error {
	switch isOfCreation := c.Op == proto.OpExists; {
	case isOfCreation && err == nil:
		return zkutil.ErrStale
	case isOfCreation && errors.Is(err, zk.ErrNoNode):
		return nil
	default:
		return err
	}
}

// takeLocked records the server's answer to the request that sets the watch.
func (w *Watch) takeLocked(c *call, a wire.Answer) {
	ws := &c.flight.s.watches
	w.err, w.data, w.seenAt = c.watchError(a.Err), a.Data, ws.s.clock.Now()
	w.checkedAt = w.seenAt
	w.czxid, w.ctime, w.owner = a.Stat.Czxid, a.Stat.Ctime, a.Stat.EphemeralOwner
	w.core.OnAnswer(w.err == nil, w.latestChange(a))
	ws.settleLocked(w)
	close(w.setDone)
	w.setDone = nil
}

// rereadCall returns a read, without a watch, whose answer shows whether the watch fired.
func (w *Watch) rereadCall() *call {
	if w.kind == core.WatchData {
		return readCall(w.path)
	}
	return &call{Request: wire.Request{Op: proto.OpExists, Path: w.path}} // for children as well: no list, and no permission to list
}

// latestChange returns, from the stat in an answer, the zxid of the latest change of the kind for which the
// watch fires.
func (w *Watch) latestChange(a wire.Answer) int64 {
	switch w.kind {
	case core.WatchData:
		return a.Stat.Mzxid
	case core.WatchChildren:
		return a.Stat.Pzxid
	default:
		return a.Stat.Czxid
	}
}

// fire fires the watches on path used up by an event, and ends the hold of a deleted znode. After a deletion or
// a lost watch, heartbeats do not check the znode until the next read. fire is called by the reader of a
// connection, partly from zk.Conn's event callback, and by tasks of the session.
func (ws *watches) fire(path string, event zk.EventType) {
	s := ws.s
	kinds := core.FiredBy(int32(event))
	if event == zk.EventNotWatching {
		kinds = core.FiredBy(proto.EventDeleted)
	}
	isDeleted := event == zk.EventNodeDeleted
	s.mu.Lock()
	defer s.mu.Unlock()
	if isDeleted || event == zk.EventNotWatching {
		delete(s.keeper.nodes, path)
	}
	if hold := s.holds.byPath[path]; isDeleted && hold != nil {
		hold.endAsDeletedLocked()
	}
	for _, kind := range kinds {
		if w := ws.byKey[wire.WatchKey{Path: path, Kind: kind}]; w != nil {
			ws.fireLocked(w, event)
		}
	}
}

func (ws *watches) fireLocked(w *Watch, event zk.EventType) {
	w.core.OnEvent()
	ws.settleLocked(w)
	w.event = event
	close(w.fired)
}

// settleLocked acts on what core.Watch decided: a watch that is over is forgotten, and an unused watch retains the session.
func (ws *watches) settleLocked(w *Watch) {
	if w.core.IsOver && ws.byKey[w.key()] == w {
		delete(ws.byKey, w.key())
	}
	if isUnused := w.core.IsUnused(); isUnused != w.isRetained {
		w.isRetained = isUnused
		if isUnused {
			ws.s.keeper.retainLocked()
		} else {
			ws.s.keeper.releaseLocked()
		}
	}
}

// loseLocked fires all watches. The server of the previous connection had them.
func (ws *watches) loseLocked() {
	for _, w := range ws.byKey {
		ws.fireLocked(w, zk.EventNotWatching)
	}
}

// The first znode of a queue stays the first as long as the znode exists, because later znodes have higher
// numbers. So once a hold of this session was the first, all contenders ahead are known to be deleted, without a
// list.

// Doubt makes an audit due soon, because the server may show the watched znode although it is deleted.
func (s *Session) Doubt(w *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, isDoubted := s.watches.doubted[w]; !isDoubted {
		s.watches.doubted[w] = s.clock.Now()
	}
}

// doubtedAtLocked returns the time of the earliest doubt, zero if there is none. The end of a watch ends the doubt.
func (ws *watches) doubtedAtLocked() (earliest time.Time) {
	for w, at := range ws.doubted {
		switch {
		case w.HasFired(), w.core.Users == 0:
			delete(ws.doubted, w)
		case earliest.IsZero(), at.Before(earliest):
			earliest = at
		}
	}
	return earliest
}

// compareDoubtsLocked puts doubted watches first.
func (ws *watches) compareDoubtsLocked(a, b *Watch) int {
	order := func(w *Watch) int {
		if _, isDoubted := ws.doubted[w]; isDoubted {
			return 0
		}
		return 1
	}
	return order(a) - order(b)
}

// IsFirst reports whether the watched znode is, or was, a hold of this session that was the first of its queue.
// After that, no contender can be ahead.
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

// noteFirstLocked records that the watched znode is a hold of this session that is the first of its queue.
func (w *Watch) noteFirstLocked() {
	if !w.isFirst && w.onFirst != nil {
		close(w.onFirst)
	}
	w.isFirst = true
}

// Watches on contenders' own znodes are not released, because they fire when the znode is deleted.
//
// Some unused watches stay until they fire: watches on servers before 3.5; watches also set by a user of zk.Conn, because the server does not
// distinguish the two; and the data watch that the server sets for a call that waits for the creation of a znode
// and finds the znode.

// ReleaseWatch gives back a watch that the caller no longer needs. The watch may be nil or fired.
func (s *Session) ReleaseWatch(w *Watch) {
	if w == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.core.Leave(!s.gate.optional.Of(proto.OpRemoveWatches).IsLacking)
	s.watches.settleLocked(w)
}

// joinLocked gives a watch to another user, and fails for a watch being removed.
func (ws *watches) joinLocked(w *Watch) bool {
	defer ws.settleLocked(w)
	return w.core.Join()
}

func (w *Watch) key() wire.WatchKey { return wire.WatchKey{Path: w.path, Kind: w.kind} }

// removeLocked returns a request to remove a watch from the server, nil for a watch that stays for now. A server without removeWatches may end the
// connection, which must not cost holds.
func (ws *watches) removeLocked(w *Watch) *call {
	s := ws.s
	state := s.gate.optional.Of(proto.OpRemoveWatches)
	canRemove := func() bool { return !state.IsLacking && !s.wire.Line().HasConnWatch(w.key()) }
	isAsked := w.core.BeginRemoval(state.IsKnown || !s.cfg.SuspendEnds || s.core.Standing == 0, canRemove)
	ws.settleLocked(w)
	if !isAsked {
		return nil
	}
	return &call{Request: wire.Request{Op: proto.OpRemoveWatches, Path: w.path, Kind: w.kind}}
}

// onRemoveAnswered waits for the answer to a removal.
func (ws *watches) onRemoveAnswered(ctx context.Context, w *Watch, removal *call) {
	s := ws.s
	_, err := removal.wait(ctx)
	if !errors.Is(err, zk.ErrConnectionClosed) || removal.support.isEnd { // a silence says nothing, and a wrong guess would leave watches
		s.gate.optional.NoteOutcome(proto.OpRemoveWatches, removal.support.before, err)
	}
	if errors.Is(err, zk.ErrBadArguments) {
		s.gate.optional.NoteLacking(proto.OpRemoveWatches, removal.support.before)
	}
	result := removalOf(err)
	s.mu.Lock()
	if w.core.EndRemoval(result) {
		for _, kind := range w.kind.RemovedWith() {
			if other := ws.byKey[wire.WatchKey{Path: w.path, Kind: kind}]; other != nil && other != w && other.core.IsSet {
				ws.fireLocked(other, zk.EventNotWatching)
			}
		}
	}
	ws.settleLocked(w)
	s.mu.Unlock()
	if line := removal.flight.ticket.line; result.IsGone() && line.HasConnWatch(w.key()) {
		s.log.Log(slog.LevelWarn, "a user's watch may be missing on the server; closing the connection to set it again", "path", w.path)
		_ = line.Close()
	}
}

// removalOf returns the result of a request with an error.
func removalOf(err error) core.Removal {
	switch {
	case err == nil:
		return core.Removed
	case zkutil.IsNoWatcher(err):
		return core.WasNone
	case ops.IsAnswered(err):
		return core.Refused
	default:
		return core.Unanswered
	}
}
