package zktest

import (
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// setWatches is what a client sends after a reconnect: what has changed since the
// last zxid that it saw is told at once, the rest is watched again.
func (l *line) setWatches(op int32, d *proto.Decoder) (code int32) {
	since := d.Int64()
	data, exist, children := d.Strings(), d.Strings(), d.Strings()
	var lasting, deep []string
	if op == proto.OpSetWatches2 {
		lasting, deep = d.Strings(), d.Strings()
	}
	if d.Err() != nil {
		return proto.CodeMarshallingError
	}
	for _, path := range data {
		switch n := l.server.find(path); {
		case n == nil:
			l.notify(event{proto.EventDeleted, path})
		case n.stat.Mzxid > since:
			l.notify(event{proto.EventDataChanged, path})
		default:
			l.srv.watches.add(dataWatch, path, l, oneShot)
		}
	}
	for _, path := range exist {
		if l.server.find(path) != nil {
			l.notify(event{proto.EventCreated, path})
		} else {
			l.srv.watches.add(dataWatch, path, l, oneShot)
		}
	}
	for _, path := range children {
		switch n := l.server.find(path); {
		case n == nil:
			l.notify(event{proto.EventDeleted, path})
		case n.stat.Pzxid > since:
			l.notify(event{proto.EventChildrenChanged, path})
		default:
			l.srv.watches.add(childWatch, path, l, oneShot)
		}
	}
	for _, path := range lasting {
		l.watchBoth(path, persistent)
	}
	for _, path := range deep {
		l.watchBoth(path, recursive)
	}
	return proto.CodeOK
}

// watchBoth sets the two watches that addWatch consists of.
func (l *line) watchBoth(path string, mode watchMode) {
	l.srv.watches.add(dataWatch, path, l, mode)
	l.srv.watches.add(childWatch, path, l, mode)
}

// addWatch sets a watch that stays. The znode need not be there, nor be readable.
func (l *line) addWatch(d *proto.Decoder) (body *proto.Encoder, code int32) {
	path, mode := d.String(), d.Int32()
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

// askWatches removes watches of the connection, or tells whether there are any. To the
// second the real server answers for all connections.
func (l *line) askWatches(op int32, d *proto.Decoder) (code int32) {
	path, which := d.String(), d.Int32()
	relative := path != "" && !strings.Contains(path, "/") // the real server's check stumbles over it
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
