package wire

import (
	"math"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// The wire mirrors zk.Conn's list of watches, because zk.Conn does not expose whether any watches have to be
// set again after a reconnect.

// setWatchesKind stands for no kind: a setWatches has no path.
const setWatchesKind = core.WatchKind(math.MaxUint8)

// WatchKey identifies a watch in zk.Conn's tables.
type WatchKey struct {
	Path string
	Kind core.WatchKind
}

// noteRequest records the effect that a request has once answered. The request may ask for a watch, present a
// credential or end the session. noteRequest returns the xid and the operation code.
func (l *Line) noteRequest(frame []byte) (xid, op int32) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	d := proto.NewDecoder(frame)
	_, xid, op = d.Int32(), d.Int32(), d.Int32() // the length first
	var kind core.WatchKind
	switch op {
	case proto.OpGetData:
		kind = core.WatchData
	case proto.OpExists:
		kind = core.WatchExists
	case proto.OpGetChildren, proto.OpGetChildren2:
		kind = core.WatchChildren
	case proto.OpSetWatches, proto.OpSetWatches2:
		l.watchRequests[xid] = WatchKey{Kind: setWatchesKind}
		return xid, op
	case proto.OpAuth:
		c := credentialOf(frame)
		if l.credentials[xid] = c; slices.Contains(l.credentialsLeft, c) {
			l.credentials[xid] = ""
		}
		return xid, op
	case proto.OpAddWatch: // no zk.Conn sends AddWatch today
		l.wire.passEvents = true
		return xid, op
	case proto.OpCloseSession:
		l.state.isClosing, l.state.closeXid = true, xid
		l.restore.releaseLocked()
		return xid, op
	default:
		return xid, op
	}
	if path := d.String(); d.Len() == 1 && d.Bool() {
		l.watchRequests[xid] = WatchKey{path, kind}
	}
	return xid, op
}

// isSetWatches reports whether xid is an unanswered setWatches.
func (l *Line) isSetWatches(xid int32) bool {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.watchRequests[xid].Kind == setWatchesKind
}

// registerWatch registers the watch requested with xid, under the same conditions as zk.Conn.
func (l *Line) registerWatch(xid, code int32) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	key, ok := l.watchRequests[xid]
	if !ok {
		return
	}
	delete(l.watchRequests, xid)
	if key.Kind == setWatchesKind {
		return
	}
	if code == proto.CodeOK && key.Kind == core.WatchExists {
		key.Kind = core.WatchData // as zk.Conn does for an existing znode
	}
	if code == proto.CodeOK || code == proto.CodeNoNode && key.Kind == core.WatchExists {
		l.wire.watches[key] = struct{}{}
	}
}

// hasConnWatch reports whether zk.Conn has a watch for an event.
func (l *Line) hasConnWatch(event int32, path string) bool {
	kinds := core.FiredBy(event)
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.wire.passEvents || len(kinds) == 0 || slices.ContainsFunc(kinds, func(kind core.WatchKind) bool {
		_, isWatched := l.wire.watches[WatchKey{path, kind}]
		return isWatched
	})
}

// forgetFired forgets the watches consumed by an event.
func (l *Line) forgetFired(event int32, path string) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	for _, kind := range core.FiredBy(event) {
		delete(l.wire.watches, WatchKey{path, kind})
	}
}

// HasConnWatch reports whether zk.Conn has, or asked for, a watch that the server can't distinguish from the engine's
// watch key.
func (l *Line) HasConnWatch(key WatchKey) bool {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	isSame := func(other WatchKey) bool {
		return other.Path == key.Path && other.Kind.Watchers() == key.Kind.Watchers()
	}
	for other := range l.wire.watches {
		if isSame(other) {
			return true
		}
	}
	for _, other := range l.watchRequests {
		if other.Kind != setWatchesKind && isSame(other) {
			return true
		}
	}
	return l.wire.passEvents
}
