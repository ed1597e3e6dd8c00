package zktest

import (
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// read executes one read on the tree as the server sees it, and sets the watch that
// it asks for.
func (l *line) read(op int32, d *proto.Decoder) (body *proto.Encoder, code int32) {
	path, watch := d.String(), false
	switch op {
	case proto.OpExists, proto.OpGetData, proto.OpGetChildren, proto.OpGetChildren2:
		watch = d.Bool()
	}
	if d.Err() != nil {
		return nil, proto.CodeMarshallingError
	}
	if op == proto.OpSync {
		return proto.NewEncoder().String(strings.ToValidUTF8(path, "\uFFFD")), proto.CodeOK
	}
	return l.look(op, path, watch)
}

// look reads a znode.
func (l *line) look(op int32, path string, watch bool) (body *proto.Encoder, code int32) {
	body = proto.NewEncoder()
	n := l.server.find(path)
	if op == proto.OpExists {
		switch {
		case strings.ContainsRune(path, 0):
			return nil, proto.CodeBadArguments
		case watch:
			l.srv.watches.add(dataWatch, path, l, oneShot)
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
			l.srv.watches.add(dataWatch, path, l, oneShot)
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
		l.srv.watches.add(childWatch, path, l, oneShot)
	}
	body.Strings(n.list())
	if op == proto.OpGetChildren2 {
		body.Stat(n.view())
	}
	return body, proto.CodeOK
}
