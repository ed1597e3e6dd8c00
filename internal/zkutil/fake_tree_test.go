package zkutil

import (
	"fmt"
	"slices"
	"strings"
)

// execute runs one request on the tree, or on what an isolated server still sees.
// Called under f.mu.
func (l *fakeLine) execute(op int32, d *decoder) (body []byte, code int32) {
	f := l.f
	tree := f.tree
	if view, ok := f.views[l.server]; ok {
		tree = view
	}
	if isWrite(op) {
		f.zxid++
	}
	switch op {
	case opPing, opClose, opSetAuth:
		return nil, codeOK
	case opSetWatches:
		return nil, l.setWatches(d)
	case opMulti:
		return f.multi(d)
	}
	path := d.string()
	n, found := tree[path]
	switch {
	case op == opSync:
		return jute(path), codeOK
	case op == opCreate || op == opCreateContainer:
		return l.create(path, d)
	case !found:
		return nil, codeNoNode
	}
	switch op {
	case opDelete:
		if len(childrenOf(tree, path)) > 0 {
			return nil, codeNotEmpty
		}
		f.removeLocked(path)
		return nil, codeOK
	case opGetData:
		if d.bool() {
			f.watch(path, l)
		}
		return append(jute(n.data), n.stat(tree, path)...), codeOK
	case opSetData:
		n.data, n.mzxid, n.version = []byte(d.string()), f.zxid, n.version+1
		f.notify(path, eventDataChanged)
		return n.stat(tree, path), codeOK
	case opGetChildren2:
		return append(jute(childrenOf(tree, path)), n.stat(tree, path)...), codeOK
	}
	return nil, codeUnimplemented
}

func (f *fake) watch(path string, l *fakeLine) {
	if !slices.Contains(f.watches[path], l) {
		f.watches[path] = append(f.watches[path], l)
	}
}

func (n *fakeNode) stat(tree map[string]*fakeNode, path string) []byte {
	return jute(n.czxid, n.mzxid, int64(0), int64(0), n.version, n.children, int32(0), n.owner,
		len(n.data), len(childrenOf(tree, path)), n.czxid)
}

func (l *fakeLine) create(path string, d *decoder) (body []byte, code int32) {
	f := l.f
	data := d.string()
	for range d.int32() { // the ACL
		d.int32()
		d.string()
		d.string()
	}
	flags := d.int32()
	dir := max(path[:strings.LastIndexByte(path, '/')], "/")
	parent, ok := f.tree[dir]
	if !ok {
		return nil, codeNoNode
	}
	const ephemeral, sequential = 1, 2
	n := &fakeNode{data: []byte(data), czxid: f.zxid, mzxid: f.zxid}
	if flags < 4 && flags&sequential != 0 {
		path += fmt.Sprintf("%010d", parent.children)
	}
	if flags < 4 && flags&ephemeral != 0 {
		n.owner = l.session
	}
	if _, exists := f.tree[path]; exists {
		return nil, codeNodeExists
	}
	parent.children++
	f.tree[path] = n
	return jute(path), codeOK
}

// multi knows checks of existence alone.
func (f *fake) multi(d *decoder) (body []byte, code int32) {
	var failed bool
	var results []int32
	for {
		op, done := d.int32(), d.bool()
		d.int32()
		if done {
			break
		}
		if op != opCheck {
			return nil, codeUnimplemented
		}
		_, found := f.tree[d.string()]
		d.int32()
		results = append(results, map[bool]int32{true: codeOK, false: codeNoNode}[found])
		failed = failed || !found
	}
	for _, result := range results {
		if failed {
			body = append(body, jute(-1, false, result, result)...)
		} else {
			body = append(body, jute(opCheck, false, codeOK)...)
		}
	}
	return append(body, jute(-1, true, -1)...), codeOK
}

// setWatches tells what has changed since the client's last zxid, and watches the rest.
func (l *fakeLine) setWatches(d *decoder) (code int32) {
	since := d.int64()
	for _, path := range d.strings() {
		switch n, found := l.f.tree[path]; {
		case !found:
			l.event(path, eventDeleted)
		case n.mzxid > since:
			l.event(path, eventDataChanged)
		default:
			l.f.watch(path, l)
		}
	}
	if len(d.strings())+len(d.strings()) > 0 {
		return codeUnimplemented // exist and child watches
	}
	return codeOK
}
