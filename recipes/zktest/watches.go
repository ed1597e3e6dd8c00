package zktest

import (
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// watchKind: a watch on a znode's data or existence, or one on its children.
type watchKind uint8

const (
	dataWatch watchKind = iota
	childWatch
)

// watchMode is how long a watch stands, and what it is about. As on a real server up to
// 3.8, a connection has one for a path and kind: the latest.
type watchMode uint8

const (
	oneShot    watchMode = iota // until it fires
	persistent                  // until it is removed
	recursive                   // the same, and it is about all znodes below, too
)

type watchKey struct {
	kind watchKind
	path string
}

// watches are those of all connections, in the order in which they were set. The
// server's lock guards them.
type watches map[watchKey][]*line

func (w watches) add(kind watchKind, path string, l *line, mode watchMode) {
	key := watchKey{kind, path}
	if _, ok := l.watches[key]; !ok {
		w[key] = append(w[key], l)
	}
	l.watches[key] = mode
}

// remove takes a connection's watch away, if it has one.
func (w watches) remove(kind watchKind, path string, l *line) (removed bool) {
	key := watchKey{kind, path}
	if _, ok := l.watches[key]; !ok {
		return false
	}
	delete(l.watches, key)
	w.drop(key, func(other *line) bool { return other == l })
	return true
}

// forget drops what a connection watches.
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

// tell sends word of a deed to those who wait for it. Each is told once, even of a
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

// fire sends an event that a deed causes to those who watch its path, or recursively one
// above, and uses up the watches that are for once, except those set through a server
// that does not notice the deed. Those in told, and those whom the ACL does not let read,
// are not told.
func (w watches) fire(kind watchKind, d deed, e event, acl []zk.ACL, told []*line) (informed []*line) {
	for path := e.path; ; path = max(dirOf(path), "/") {
		key := watchKey{kind, path}
		if len(w[key]) > 0 {
			w.drop(key, func(l *line) bool {
				mode := l.watches[key]
				if !isMeant(mode, path, e) || l.server.isolated() || l.server.hides(d) {
					return false
				}
				if !slices.Contains(told, l) && !slices.Contains(informed, l) && permits(acl, zk.PermRead, l.who) {
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

// isMeant reports whether an event is for a watch of some mode on path.
func isMeant(mode watchMode, path string, e event) bool {
	if mode == recursive {
		return e.kind != proto.EventChildrenChanged
	}
	return path == e.path
}
