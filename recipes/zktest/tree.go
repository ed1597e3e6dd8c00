package zktest

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// node is a znode.
type node struct {
	data     []byte
	acl      []zk.ACL
	stat     zk.Stat // without the fields that view computes
	creates  int32   // children created so far, and the next child's sequence number
	children map[string]struct{}
}

// view returns the stat as clients get it. Its child version counts creates and deletes,
// whereas the server stores only the number of creates (DataNode.copyStat).
func (n *node) view() zk.Stat {
	s := n.stat
	s.DataLength = int32(len(n.data))
	s.NumChildren = int32(len(n.children))
	s.Cversion = n.creates*2 - s.NumChildren
	s.EphemeralOwner = max(s.EphemeralOwner, 0) // the marks of containers and TTLs are the server's own
	return s
}

// isEphemeral distinguishes a session's znode from a container and from a znode with a TTL.
func (n *node) isEphemeral() bool { return n.stat.EphemeralOwner > 0 }

// tree is the data of an ensemble, without sessions and connections. The server's lock
// guards it.
type tree struct {
	nodes map[string]*node
	owned map[int64]map[string]struct{} // the ephemeral znodes of each session
}

// newTree returns the tree of a new server.
func newTree() *tree {
	open, readable := zk.WorldACL(zk.PermAll), zk.WorldACL(zk.PermRead)
	t := &tree{nodes: map[string]*node{"/": {data: []byte{}, acl: open}}, owned: map[int64]map[string]struct{}{}}
	t.insert("/zookeeper", &node{data: []byte{}, acl: open})
	t.insert("/zookeeper/quota", &node{data: []byte{}, acl: open})
	t.insert("/zookeeper/config", &node{data: []byte{}, acl: readable, stat: zk.Stat{Aversion: -1}})
	return t
}

// insert puts a znode below its existing parent.
func (t *tree) insert(path string, n *node) {
	parent := t.parent(path)
	if parent.children == nil {
		parent.children = map[string]struct{}{}
	}
	parent.children[nameOf(path)] = struct{}{}
	t.nodes[path] = n
	if n.isEphemeral() {
		owned := t.owned[n.stat.EphemeralOwner]
		if owned == nil {
			owned = map[string]struct{}{}
			t.owned[n.stat.EphemeralOwner] = owned
		}
		owned[path] = struct{}{}
	}
}

// erase removes a znode.
func (t *tree) erase(path string) {
	n := t.nodes[path]
	delete(t.parent(path).children, nameOf(path))
	delete(t.nodes, path)
	if owned := t.owned[n.stat.EphemeralOwner]; owned != nil {
		delete(owned, path)
		if len(owned) == 0 {
			delete(t.owned, n.stat.EphemeralOwner)
		}
	}
}

// ephemerals returns the paths of a session's znodes, the oldest first.
func (t *tree) ephemerals(session int64) []string {
	return slices.SortedFunc(maps.Keys(t.owned[session]), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.nodes[a].stat.Czxid, t.nodes[b].stat.Czxid), cmp.Compare(a, b))
	})
}

// find returns the znode at a path. The server takes the empty path for the root.
func (t *tree) find(path string) *node {
	if path == "" {
		path = "/"
	}
	return t.nodes[path]
}

func (t *tree) parent(path string) *node { return t.find(dirOf(path)) }

// copy returns a snapshot of the tree, for a server that will see no later change.
func (t *tree) copy() *tree {
	frozen := &tree{nodes: make(map[string]*node, len(t.nodes))}
	for path, n := range t.nodes {
		image := *n
		image.children = maps.Clone(n.children)
		frozen.nodes[path] = &image
	}
	return frozen
}

// clone returns a copy of the tree that may be changed.
func (t *tree) clone() *tree {
	c := t.copy()
	c.owned = make(map[int64]map[string]struct{}, len(t.owned))
	for id, paths := range t.owned {
		c.owned[id] = maps.Clone(paths)
	}
	return c
}

// list returns the names below a znode. As on a real server the order is arbitrary, but
// the same each time.
func (n *node) list() []string {
	type entry struct {
		hash uint32
		name string
	}
	entries := make([]entry, 0, len(n.children))
	for name := range n.children {
		h := fnv.New32a()
		_, _ = h.Write([]byte(name))
		entries = append(entries, entry{h.Sum32(), name})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.name, b.name))
	})
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.name
	}
	return names
}

// change is one transaction on a tree. Its effects are visible at once, and undone if a later part fails. Its events
// are sent once the whole transaction succeeds.
type change struct {
	tree    *tree
	zxid    int64
	now     int64 // milliseconds
	inMulti bool
	ttl     bool // znodes with a TTL are allowed
	sasl    bool // the scheme "sasl" is known
	tls     bool // the scheme "x509" is known
	events  []deed
	undo    []func()
}

// event is a notification for a watcher.
type event struct {
	kind int32
	path string
}

// deed is a change of a znode, with the ACLs that decide who is notified: clients who may
// read the znode and, for its creation and deletion, clients who may read its parent
// (CVE-2024-23944).
type deed struct {
	event
	acl, parentACL []zk.ACL
}

func (c *change) rollback() {
	for _, undo := range slices.Backward(c.undo) {
		undo()
	}
	c.events, c.undo = nil, nil
}

// touch saves a znode's present fields for a rollback.
func (c *change) touch(n *node) {
	before := *n
	c.undo = append(c.undo, func() {
		before.children = n.children // add and remove undo children themselves
		*n = before
	})
}

// add creates a znode below an existing parent.
func (c *change) add(path string, data []byte, acl []zk.ACL, owner int64) *node {
	n := &node{data: data, acl: acl, stat: zk.Stat{
		Czxid: c.zxid, Mzxid: c.zxid, Pzxid: c.zxid, Ctime: c.now, Mtime: c.now, EphemeralOwner: owner,
	}}
	parent := c.tree.parent(path)
	c.touch(parent)
	// After 2147483647 the server's counter stands still.
	if next := parent.creates + 1; next > parent.creates {
		parent.creates = next
		parent.stat.Pzxid = c.zxid
	}
	c.tree.insert(path, n)
	c.undo = append(c.undo, func() { c.tree.erase(path) })
	c.events = append(c.events, deed{event{proto.EventCreated, path}, acl, parent.acl})
	return n
}

// remove deletes a znode that has no children.
func (c *change) remove(path string) {
	n, parent := c.tree.nodes[path], c.tree.parent(path)
	c.touch(parent)
	parent.stat.Pzxid = max(parent.stat.Pzxid, c.zxid)
	c.tree.erase(path)
	c.undo = append(c.undo, func() { c.tree.insert(path, n) })
	c.events = append(c.events, deed{event{proto.EventDeleted, path}, n.acl, parent.acl})
}

// put changes a znode's data.
func (c *change) put(path string, data []byte) *node {
	n := c.tree.find(path)
	c.touch(n)
	n.data, n.stat.Version, n.stat.Mzxid, n.stat.Mtime = data, n.stat.Version+1, c.zxid, c.now
	c.events = append(c.events, deed{event{proto.EventDataChanged, path}, n.acl, nil})
	return n
}

// dirOf returns the part before the last slash, which is empty for a child of the root.
func dirOf(path string) string { return path[:strings.LastIndexByte(path, '/')] }

func nameOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// numbered appends a sequence number in the server's format.
func numbered(path string, n int32) string { return fmt.Sprintf("%s%010d", path, n) }

// isValid checks a path as the server's PathUtils does.
func isValid(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") ||
		strings.ContainsFunc(path, proto.ForbiddenInPath) {
		return false
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		switch segment {
		case "", ".", "..":
			return false
		}
	}
	return true
}

// checkPath panics on a path that no znode can have, because a test must not pass by a typo.
func checkPath(path string) {
	if !isValid(path) {
		panic(fmt.Sprintf("zktest: invalid path %q", path))
	}
}

// ttlOf returns a znode's time to live, 0 if it has none.
func ttlOf(owner int64) time.Duration {
	if owner >= 0 || owner == proto.ContainerOwner {
		return 0
	}
	return time.Duration(owner-proto.TTLOwner) * time.Millisecond
}

// isSpent reports whether the server may remove a znode without children. A container that never had a child is
// removed at the age of unused, or never if unused is 0.
func (n *node) isSpent(now time.Time, unused time.Duration) bool {
	if n.stat.EphemeralOwner == proto.ContainerOwner {
		return n.creates > 0 || unused > 0 && now.Sub(time.UnixMilli(n.stat.Mtime)) > unused
	}
	ttl := ttlOf(n.stat.EphemeralOwner)
	return ttl > 0 && now.Sub(time.UnixMilli(n.stat.Mtime)) > ttl
}
