package zktest

import (
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// read executes one read on the tree as the server sees it, and sets the watch that
// it asks for.
func (l *line) read(op int32, d *proto.Decoder, t *tree) (body *proto.Encoder, code int32) {
	path, watch := d.String(), false
	switch op {
	case proto.OpExists, proto.OpGetData, proto.OpGetChildren, proto.OpGetChildren2:
		watch = d.Bool()
	}
	if d.Err() != nil {
		return nil, proto.CodeMarshallingError
	}
	body = proto.NewEncoder()
	if op == proto.OpSync {
		return body.String(strings.ToValidUTF8(path, "\uFFFD")), proto.CodeOK
	}
	n := t.find(path)
	if op == proto.OpExists {
		switch {
		case strings.ContainsRune(path, 0):
			return nil, proto.CodeBadArguments
		case watch:
			l.srv.watches.add(dataWatch, path, l)
		}
		if n == nil {
			return nil, proto.CodeNoNode
		}
		return body.Stat(n.view()), proto.CodeOK
	}
	if n == nil {
		return nil, proto.CodeNoNode
	}
	perm := int32(zk.PermRead)
	if op == proto.OpGetACL {
		perm |= zk.PermAdmin
	}
	if !permits(n.acl, perm, l.who) {
		return nil, proto.CodeNoAuth
	}
	switch op {
	case proto.OpGetData:
		if watch {
			l.srv.watches.add(dataWatch, path, l)
		}
		return body.Buffer(n.data).Stat(n.view()), proto.CodeOK
	case proto.OpGetACL:
		acl := n.acl
		if !permits(n.acl, zk.PermAdmin, l.who) {
			acl = masked(acl)
		}
		return body.ACL(acl).Stat(n.view()), proto.CodeOK
	}
	if watch {
		l.srv.watches.add(childWatch, path, l)
	}
	body.Strings(n.list())
	if op == proto.OpGetChildren2 {
		body.Stat(n.view())
	}
	return body, proto.CodeOK
}

// setWatches is what a client sends after a reconnect: what has changed since the
// last zxid that it saw is told at once, the rest is watched again.
func (l *line) setWatches(d *proto.Decoder, t *tree) (code int32) {
	since := d.Int64()
	data, exist, children := d.Strings(), d.Strings(), d.Strings()
	if d.Err() != nil {
		return proto.CodeMarshallingError
	}
	for _, path := range data {
		switch n := t.find(path); {
		case n == nil:
			l.notify(event{proto.EventDeleted, path})
		case n.stat.Mzxid > since:
			l.notify(event{proto.EventDataChanged, path})
		default:
			l.srv.watches.add(dataWatch, path, l)
		}
	}
	for _, path := range exist {
		if t.find(path) != nil {
			l.notify(event{proto.EventCreated, path})
		} else {
			l.srv.watches.add(dataWatch, path, l)
		}
	}
	for _, path := range children {
		switch n := t.find(path); {
		case n == nil:
			l.notify(event{proto.EventDeleted, path})
		case n.stat.Pzxid > since:
			l.notify(event{proto.EventChildrenChanged, path})
		default:
			l.srv.watches.add(childWatch, path, l)
		}
	}
	return proto.CodeOK
}
