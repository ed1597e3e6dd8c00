package zktest

import (
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// watchKind distinguishes watches on a znode's data or existence from watches on its
// children.
type watchKind uint8

const (
	dataWatch watchKind = iota
	childWatch
)

// watchMode is the duration and the scope of a watch. As on real servers up to 3.8, a connection has at most one watch
// per path and kind, the latest.
type watchMode uint8

const (
	oneShot    watchMode = iota // until it fires
	persistent                  // until it is removed
	recursive                   // the same, and it covers all znodes below, too
)

type watchKey struct {
	kind watchKind
	path string
}

// watches holds the watches of all connections, in the order in which they were set. The
// server's lock guards the map.
type watches map[watchKey][]*line

func (w watches) add(kind watchKind, path string, l *line, mode watchMode) {
	key := watchKey{kind, path}
	if _, ok := l.watches[key]; !ok {
		w[key] = append(w[key], l)
	}
	l.watches[key] = mode
}

// remove removes a connection's watch, if it has one.
func (w watches) remove(kind watchKind, path string, l *line) (removed bool) {
	key := watchKey{kind, path}
	if _, ok := l.watches[key]; !ok {
		return false
	}
	delete(l.watches, key)
	w.drop(key, func(other *line) bool { return other == l })
	return true
}

// forget removes all watches of a connection.
func (w watches) forget(l *line) {
	for key := range l.watches {
		w.drop(key, func(other *line) bool { return other == l })
	}
	clear(l.watches)
}

func (w watches) drop(key watchKey, gone func(*line) bool) {
	if left := slices.DeleteFunc(w[key], gone); len(left) > 0 {
		w[key] = left
	} else {
		delete(w, key)
	}
}

// tell notifies the clients that watch a deed. Each client is notified once, even of a
// deletion that it watches in both ways.
func (w watches) tell(d deed) {
	told := w.fire(dataWatch, d, d.event, d.acl, nil)
	changed := event{proto.EventChildrenChanged, max(dirOf(d.path), "/")}
	switch d.kind {
	case proto.EventCreated:
		w.fire(childWatch, d, changed, d.parentACL, nil)
	case proto.EventDeleted:
		w.fire(childWatch, d, d.event, d.acl, told)
		w.fire(childWatch, d, changed, d.parentACL, nil)
	}
}

// fire sends an event caused by a deed to the connections that watch its path, or
// recursively a path above, and uses up one-shot watches. It skips connections to servers
// that do not notice the deed, and keeps their watches. Connections in told, and
// connections that the ACL does not let read, lose the watch but get no event.
func (w watches) fire(kind watchKind, d deed, e event, acl []zk.ACL, told []*line) (informed []*line) {
	for path := e.path; ; path = max(dirOf(path), "/") {
		key := watchKey{kind, path}
		if len(w[key]) > 0 {
			w.drop(key, func(l *line) bool {
				mode := l.watches[key]
				if !isMeant(mode, path, e) || l.server.isolated() || l.server.hides(d) {
					return false
				}
				if !slices.Contains(told, l) && !slices.Contains(informed, l) && (l.srv.cfg.traits.notifiesAll || permits(acl, zk.PermRead, l.who)) {
					l.notify(e)
				}
				informed = append(informed, l)
				if mode == oneShot {
					delete(l.watches, key)
				}
				return mode == oneShot
			})
		}
		if path == "/" {
			return informed
		}
	}
}

// isMeant reports whether an event concerns a watch of some mode on path.
func isMeant(mode watchMode, path string, e event) bool {
	if mode == recursive {
		return e.kind != proto.EventChildrenChanged
	}
	return path == e.path
}

// setWatches restores a client's watches after a reconnect: it sends events at once for
// changes since the last zxid that the client saw, and sets the other watches again. Like
// the real server, it stops at a null vector, and at the null path of a one-shot watch.
func (l *line) setWatches(op int32, d *proto.Decoder) (code int32) {
	since := d.Int64()
	vectors := []struct {
		paths   []string
		mode    watchMode
		restore func(path string, n *node)
	}{
		{d.Strings(), oneShot, func(path string, n *node) { l.restoreWatch(dataWatch, path, n, since) }},
		{d.Strings(), oneShot, func(path string, n *node) {
			if n != nil {
				l.notify(event{proto.EventCreated, path})
			} else {
				l.srv.watches.add(dataWatch, path, l, oneShot)
			}
		}},
		{d.Strings(), oneShot, func(path string, n *node) { l.restoreWatch(childWatch, path, n, since) }},
		{[]string{}, persistent, func(path string, _ *node) { l.watchBoth(path, persistent) }},
		{[]string{}, recursive, func(path string, _ *node) { l.watchBoth(path, recursive) }},
	}
	if op == proto.OpSetWatches2 {
		vectors[3].paths, vectors[4].paths = d.Strings(), d.Strings()
	}
	if d.Err() != nil {
		return proto.CodeMarshallingError
	}
	for _, v := range vectors {
		if v.paths == nil {
			return proto.CodeMarshallingError
		}
		for _, path := range v.paths {
			if path == proto.Null && v.mode == oneShot {
				return proto.CodeMarshallingError
			}
			v.restore(path, l.server.find(path))
		}
	}
	return proto.CodeOK
}

// restoreWatch sets a watch on the znode n again, or reports that it fired after since.
func (l *line) restoreWatch(kind watchKind, path string, n *node, since int64) {
	changed, at := int32(proto.EventDataChanged), int64(0)
	switch {
	case n == nil:
		l.notify(event{proto.EventDeleted, path})
		return
	case kind == childWatch:
		changed, at = proto.EventChildrenChanged, n.stat.Pzxid
	default:
		at = n.stat.Mzxid
	}
	if at > since {
		l.notify(event{changed, path})
	} else {
		l.srv.watches.add(kind, path, l, oneShot)
	}
}

// watchBoth sets the two watches that an addWatch consists of.
func (l *line) watchBoth(path string, mode watchMode) {
	l.srv.watches.add(dataWatch, path, l, mode)
	l.srv.watches.add(childWatch, path, l, mode)
}

// addWatch sets a watch that stays. The znode may be missing or unreadable.
func (l *line) addWatch(d *proto.Decoder) (body *proto.Encoder, code int32) {
	path, mode := d.Text(), d.Int32()
	switch {
	case d.Err() != nil:
		return nil, proto.CodeMarshallingError
	case mode == proto.WatchPersistent:
		l.watchBoth(path, persistent)
	case mode == proto.WatchRecursive:
		l.watchBoth(path, recursive)
	default:
		return nil, proto.CodeMarshallingError
	}
	return proto.NewEncoder().Int32(proto.CodeOK), proto.CodeOK
}

// askWatches removes watches of the connection, or reports whether they exist. Like the
// real server, it answers the latter for the watches of all connections.
func (l *line) askWatches(op int32, d *proto.Decoder) (code int32) {
	path, which := d.Text(), d.Int32()
	relative := path != "" && !strings.Contains(path, "/") // the real server's check fails on a relative path
	if d.Err() != nil || which < proto.WatchersOfChildren || which > proto.WatchersOfAny ||
		relative && op == proto.OpCheckWatches {
		return proto.CodeMarshallingError
	}
	found := false
	for kind, asked := range map[watchKind]int32{childWatch: proto.WatchersOfChildren, dataWatch: proto.WatchersOfData} {
		switch {
		case which != asked && which != proto.WatchersOfAny:
		case op == proto.OpRemoveWatches:
			found = l.srv.watches.remove(kind, path, l) || found
		default:
			found = found || len(l.srv.watches[watchKey{kind, path}]) > 0
		}
	}
	if !found {
		return proto.CodeNoWatcher
	}
	return proto.CodeOK
}
