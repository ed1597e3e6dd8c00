package wire

import (
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// The wire keeps the list of watches that zk.Conn keeps, because zk.Conn does not tell it whether
// there are any to set again after a reconnect.

// WatchKind is one of zk.Conn's three tables of watches.
type WatchKind uint8

// The tables of zk.Conn.
const (
	WatchData WatchKind = iota
	WatchExists
	WatchChildren
	setWatchesKind // no table: a setWatches, which has no path
)

// WatchKey is a watch as zk.Conn files it.
type WatchKey struct {
	Path string
	Kind WatchKind
}

// noteRequest notes what a request changes at its answer: it may ask for a watch, present a
// credential or end the session. It returns the xid and the operation code.
func (l *Line) noteRequest(frame []byte) (xid, op int32) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	d := proto.NewDecoder(frame)
	_, xid, op = d.Int32(), d.Int32(), d.Int32() // the length first
	var kind WatchKind
	switch op {
	case proto.OpGetData:
		kind = WatchData
	case proto.OpExists:
		kind = WatchExists
	case proto.OpGetChildren, proto.OpGetChildren2:
		kind = WatchChildren
	case proto.OpSetWatches, proto.OpSetWatches2:
		l.watchRequests[xid] = WatchKey{Kind: setWatchesKind}
		return xid, op
	case proto.OpAuth:
		c := credentialOf(frame)
		if l.credentials[xid] = c; slices.Contains(l.credentialsLeft, c) {
			l.credentials[xid] = ""
		}
		return xid, op
	case proto.OpAddWatch: // no zk.Conn sends it today
		l.wire.passEvents = true
		return xid, op
	case proto.OpCloseSession:
		l.state.isClosing = true
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

// isSetWatches reports whether xid is a setWatches without an answer yet.
func (l *Line) isSetWatches(xid int32) bool {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.watchRequests[xid].Kind == setWatchesKind
}

// registerWatch registers the watch that a request asked for, under the same conditions as zk.Conn.
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
	if code == proto.CodeOK && key.Kind == WatchExists {
		key.Kind = WatchData // zk.Conn files the watch on an existing znode there
	}
	if code == proto.CodeOK || code == proto.CodeNoNode && key.Kind == WatchExists {
		l.wire.watches[key] = struct{}{}
	}
}

// FiredBy returns the kinds of watches that an event uses up, as in zk.Conn.
func FiredBy(event int32) []WatchKind {
	switch event {
	case proto.EventCreated:
		return []WatchKind{WatchExists}
	case proto.EventDataChanged:
		return []WatchKind{WatchExists, WatchData}
	case proto.EventChildrenChanged:
		return []WatchKind{WatchChildren}
	case proto.EventDeleted:
		return []WatchKind{WatchExists, WatchData, WatchChildren}
	default:
		return nil
	}
}

// hasConnWatch reports whether zk.Conn has a watch that an event uses up.
func (l *Line) hasConnWatch(event int32, path string) bool {
	kinds := FiredBy(event)
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.wire.passEvents || len(kinds) == 0 || slices.ContainsFunc(kinds, func(kind WatchKind) bool {
		_, isWatched := l.wire.watches[WatchKey{path, kind}]
		return isWatched
	})
}

// forgetFired forgets the watches that an event uses up.
func (l *Line) forgetFired(event int32, path string) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	for _, kind := range FiredBy(event) {
		delete(l.wire.watches, WatchKey{path, kind})
	}
}
