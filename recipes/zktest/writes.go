package zktest

import (
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// caller is the session that sends a request, and its identities.
type caller struct {
	session int64
	who     []identity
}

// result is the outcome of a write. It has the error code and, depending on the operation, a path, a znode or both.
type result struct {
	op   int32
	path string
	node *node
	stat zk.Stat
	code int32
}

// write executes one write. The order of its checks is that of the server's
// PrepRequestProcessor, and decides the error if several apply.
func (c *change) write(op int32, d *proto.Decoder, by caller) result {
	switch op {
	case proto.OpCreate, proto.OpCreate2, proto.OpCreateContainer, proto.OpCreateTTL:
		return c.create(op, d, by)
	case proto.OpDelete:
		return c.delete(d, by)
	case proto.OpSetData:
		return c.setData(d, by)
	case proto.OpSetACL:
		return c.setACL(d, by)
	case proto.OpCheck:
		return c.check(d, by)
	default:
		return result{code: proto.CodeMarshallingError}
	}
}

func failed(code int32) result { return result{op: proto.OpError, code: code} }

// done copies the stat now, because a later part of the same transaction may change it.
func done(op int32, path string, n *node) result {
	return result{op: op, path: path, node: n, stat: n.view()}
}

func (c *change) create(op int32, d *proto.Decoder, by caller) result {
	path, data, acl, flags := d.Text(), d.Buffer(), d.ACL(), d.Int32()
	var ttl int64 = -1
	if op == proto.OpCreateTTL {
		ttl = d.Int64()
	}
	isTimed := flags == proto.FlagTTL || flags == proto.FlagTTLSequential
	switch { // in a Multi the flags decide the kind of znode
	case c.inMulti && !isTimed:
		op, ttl = proto.OpCreate, -1
	case c.inMulti && op != proto.OpCreateTTL:
		return failed(proto.CodeMarshallingError)
	}
	if code := c.checkCreate(d, path, flags, isTimed, ttl); code != proto.CodeOK {
		return failed(code)
	}
	acl, code := resolve(acl, by.who, c.sasl, c.tls)
	if code != proto.CodeOK {
		return failed(code)
	}
	parent := c.tree.parent(path)
	switch {
	case parent == nil:
		return failed(proto.CodeNoNode)
	case !permits(parent.acl, zk.PermCreate, by.who):
		return failed(proto.CodeNoAuth)
	}
	if flags == proto.FlagTTLSequential || flags < proto.FlagContainer && flags&proto.FlagSequential != 0 {
		path = numbered(path, parent.creates)
	}
	switch {
	case !isValid(path):
		return failed(proto.CodeBadArguments)
	case c.tree.find(path) != nil:
		return failed(proto.CodeNodeExists)
	case parent.isEphemeral():
		return failed(proto.CodeNoChildrenForEphemerals)
	}
	if c.inMulti && flags == proto.FlagContainer {
		op = proto.OpCreateContainer
	}
	n := c.add(path, data, acl, ownerOf(op, flags, ttl, by.session))
	return done(op, path, n)
}

// checkCreate returns the code for an invalid field of a create, or CodeOK.
func (c *change) checkCreate(d *proto.Decoder, path string, flags int32, isTimed bool, ttl int64) (code int32) {
	switch {
	case d.Err() != nil:
		return proto.CodeMarshallingError
	case flags < 0 || flags > proto.MaxFlag:
		return proto.CodeBadArguments
	case isTimed && !c.ttl:
		return proto.CodeUnimplemented
	case isTimed != (ttl >= 0), isTimed && (ttl == 0 || ttl > maxTTL):
		return proto.CodeBadArguments
	case path == proto.Null:
		return proto.CodeMarshallingError
	case !strings.Contains(path, "/"), strings.ContainsRune(path, 0):
		return proto.CodeBadArguments
	default:
		return proto.CodeOK
	}
}

// maxTTL is the greatest TTL that fits into the owner field beside its mark, in
// milliseconds.
const maxTTL = 1<<40 - 1

// ownerOf returns the ephemeralOwner of a new znode. The operation decides between
// container and TTL, the flags decide whether the znode is ephemeral.
func ownerOf(op, flags int32, ttl, session int64) int64 {
	switch {
	case op == proto.OpCreateContainer:
		return proto.ContainerOwner
	case op == proto.OpCreateTTL && ttl > 0:
		return proto.TTLOwner + ttl
	case flags < proto.FlagContainer && flags&proto.FlagEphemeral != 0:
		return session
	default:
		return 0
	}
}

func (c *change) delete(d *proto.Decoder, by caller) result {
	path, version := d.Text(), d.Int32()
	switch {
	case d.Err() != nil, path == proto.Null:
		return failed(proto.CodeMarshallingError)
	case !strings.Contains(path, "/") || strings.ContainsRune(path, 0) || isSpecial(path):
		return failed(proto.CodeBadArguments)
	}
	parent, n := c.tree.parent(path), c.tree.find(path)
	switch {
	case parent == nil:
		return failed(proto.CodeNoNode)
	case !permits(parent.acl, zk.PermDelete, by.who):
		return failed(proto.CodeNoAuth)
	case n == nil:
		return failed(proto.CodeNoNode)
	case version != -1 && version != n.stat.Version:
		return failed(proto.CodeBadVersion)
	case len(n.children) > 0:
		return failed(proto.CodeNotEmpty)
	}
	c.remove(path)
	return result{op: proto.OpDelete}
}

// isSpecial reports whether no client can delete a znode.
func isSpecial(path string) bool {
	switch path {
	case "/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config":
		return true
	default:
		return false
	}
}

// target returns the znode that a write concerns, if the path is valid and by has perm.
func (c *change) target(path string, perm int32, by caller) (*node, int32) {
	n := c.tree.find(path)
	switch {
	case !isValid(path):
		return nil, proto.CodeBadArguments
	case n == nil:
		return nil, proto.CodeNoNode
	case !permits(n.acl, perm, by.who):
		return nil, proto.CodeNoAuth
	default:
		return n, proto.CodeOK
	}
}

func (c *change) setData(d *proto.Decoder, by caller) result {
	path, data, version := d.Text(), d.Buffer(), d.Int32()
	if d.Err() != nil {
		return failed(proto.CodeMarshallingError)
	}
	n, code := c.target(path, zk.PermWrite, by)
	switch {
	case code != proto.CodeOK:
		return failed(code)
	case version != -1 && version != n.stat.Version:
		return failed(proto.CodeBadVersion)
	}
	return done(proto.OpSetData, path, c.put(path, data))
}

func (c *change) setACL(d *proto.Decoder, by caller) result {
	path, acl, version := d.Text(), d.ACL(), d.Int32()
	switch {
	case d.Err() != nil:
		return failed(proto.CodeMarshallingError)
	case !isValid(path):
		return failed(proto.CodeBadArguments)
	}
	acl, code := resolve(acl, by.who, c.sasl, c.tls)
	if code != proto.CodeOK {
		return failed(code)
	}
	n, code := c.target(path, zk.PermAdmin, by)
	switch {
	case code != proto.CodeOK:
		return failed(code)
	case version != -1 && version != n.stat.Aversion:
		return failed(proto.CodeBadVersion)
	}
	c.touch(n)
	n.acl, n.stat.Aversion = acl, n.stat.Aversion+1
	return done(proto.OpSetACL, path, n)
}

func (c *change) check(d *proto.Decoder, by caller) result {
	path, version := d.Text(), d.Int32()
	if d.Err() != nil {
		return failed(proto.CodeMarshallingError)
	}
	n, code := c.target(path, zk.PermRead, by)
	switch {
	case code != proto.CodeOK:
		return failed(code)
	case version != -1 && version != n.stat.Version:
		return failed(proto.CodeBadVersion)
	}
	return result{op: proto.OpCheck}
}

// multi executes all parts or none. If a part fails, the answer has code 0 for the parts
// before it, the part's own code, and "runtime inconsistency" for the parts after it.
func (c *change) multi(d *proto.Decoder, by caller) (results []result, code int32) {
	broken := false
	for {
		op, end := d.Int32(), d.Bool()
		d.Int32() // an error, unused in requests
		if d.Err() != nil {
			return nil, proto.CodeMarshallingError
		}
		if end {
			break
		}
		if !isPart(op) {
			return nil, proto.CodeMarshallingError
		}
		part := c.write(op, d, by)
		switch {
		case d.Err() != nil:
			return nil, proto.CodeMarshallingError
		case broken:
			part = failed(proto.CodeRuntimeInconsistency)
		case part.code == proto.CodeMarshallingError:
			return nil, part.code
		case part.code != proto.CodeOK:
			broken = true
			for i := range results {
				results[i] = failed(proto.CodeOK)
			}
		}
		results = append(results, part)
	}
	if broken {
		c.rollback()
	}
	return results, proto.CodeOK
}

// isPart reports whether op may be part of a Multi.
func isPart(op int32) bool {
	switch op {
	case proto.OpCreate, proto.OpCreate2, proto.OpCreateContainer, proto.OpCreateTTL,
		proto.OpDelete, proto.OpSetData, proto.OpCheck:
		return true
	default:
		return false
	}
}
