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

type watchKey struct {
	kind watchKind
	path string
}

// watches are the one-shot watches of all connections, in the order in which they
// were set. The server's lock guards them.
type watches map[watchKey][]*line

func (w watches) add(kind watchKind, path string, l *line) {
	key := watchKey{kind, path}
	if _, ok := l.watches[key]; !ok {
		l.watches[key] = struct{}{}
		w[key] = append(w[key], l)
	}
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
	told := w.fire(dataWatch, d.path, d.event, d.acl, nil)
	dir := max(dirOf(d.path), "/")
	changed := event{proto.EventChildrenChanged, dir}
	switch d.kind {
	case proto.EventCreated:
		w.fire(childWatch, dir, changed, d.parentACL, nil)
	case proto.EventDeleted:
		w.fire(childWatch, d.path, d.event, d.acl, told)
		w.fire(childWatch, dir, changed, d.parentACL, nil)
	}
}

// fire uses up the watches of a kind on a path, except those set through a server
// that does not hear of the event. Those in told, and those whom the ACL does not let
// read, are not told.
func (w watches) fire(kind watchKind, path string, e event, acl []zk.ACL, told []*line) (informed []*line) {
	key := watchKey{kind, path}
	if len(w[key]) == 0 {
		return nil
	}
	w.drop(key, func(l *line) bool {
		if l.server.isolated() {
			return false
		}
		delete(l.watches, key)
		if !slices.Contains(told, l) && permits(acl, zk.PermRead, l.who) {
			l.notify(e)
		}
		informed = append(informed, l)
		return true
	})
	return informed
}
