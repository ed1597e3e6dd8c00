package zkutil

import (
	"encoding/binary"
	"time"
)

// Operation codes and error codes of the ZooKeeper protocol, as far as the wire
// has to know them (zookeeper.jute, ZooDefs.OpCode, KeeperException.Code).
const (
	opExists       = 3
	opGetData      = 4
	opGetChildren  = 8
	opPing         = 11
	opGetChildren2 = 12
	opSetAuth      = 100
	opSetWatches   = 101

	xidEvent = -1

	codeOK     = 0
	codeNoNode = -101

	eventCreated         = 1
	eventDeleted         = 2
	eventDataChanged     = 3
	eventChildrenChanged = 4
)

// watchKind tells zk.Conn's three tables of watches apart.
type watchKind uint8

const (
	watchData watchKind = iota
	watchExists
	watchChildren
)

type watchKey struct {
	path string
	kind watchKind
}

// outgoing notes a request that asks for a watch, and returns the request's
// operation code.
func (l *line) outgoing(frame []byte) int32 {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if len(frame) < 12 {
		return 0
	}
	op := int32(binary.BigEndian.Uint32(frame[8:]))
	var kind watchKind
	switch op {
	case opGetData:
		kind = watchData
	case opExists:
		kind = watchExists
	case opGetChildren, opGetChildren2:
		kind = watchChildren
	case opSetAuth:
		l.auth = int32(binary.BigEndian.Uint32(frame[4:]))
		return op
	default:
		return op
	}
	if path, rest, ok := juteString(frame[12:]); ok && len(rest) == 1 && rest[0] == 1 {
		l.pending[int32(binary.BigEndian.Uint32(frame[4:]))] = watchKey{path, kind}
	}
	return op
}

// next waits for a frame and finds out what it means. What follows from it takes
// effect when zk.Conn has all of it: then zk.Conn acts on it before it reads on.
func (l *line) next() error {
	head, err := l.in.Peek(4)
	if err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(head))
	l.left = 4 + size
	if !l.isOpen() {
		return l.peekHandshake(size)
	}
	const header = 4 + 16
	if size < header-4 {
		return nil // malformed: zk.Conn gives up on it
	}
	if head, err = l.in.Peek(header); err != nil {
		l.left = 0
		return err
	}
	xid := int32(binary.BigEndian.Uint32(head[4:]))
	zxid := int64(binary.BigEndian.Uint64(head[8:]))
	code := int32(binary.BigEndian.Uint32(head[16:]))
	switch {
	case xid == xidEvent:
		return l.peekEvent(size)
	case xid >= 0:
		if l.isCredential(xid) {
			// zk.Conn sends nothing else before, so it can't wait; it must not take the
			// zxid that some servers put there either.
			clear(head[8:16])
		} else if zxid > 0 {
			if err := l.awaitArmed(); err != nil {
				l.left = 0
				return err // the answer is lost
			}
		}
		l.complete = func() { l.answered(xid, code) }
	}
	return nil
}

// peekHandshake reads protocol version, timeout and session id of the connect response.
func (l *line) peekHandshake(size int) error {
	const header, limit = 4 + 4 + 4 + 8, 1 << 10
	if size < header-4 || size > limit { // zk.Conn would make room for whatever it is told
		l.left = 0
		return errNotZooKeeper
	}
	head, err := l.in.Peek(header)
	if err != nil {
		l.left = 0
		return err
	}
	timeout := time.Duration(int32(binary.BigEndian.Uint32(head[8:]))) * time.Millisecond
	id := int64(binary.BigEndian.Uint64(head[12:]))
	l.complete = func() { l.opened(id, timeout) }
	return nil
}

// peekEvent reads type and path of a watch event: type, state, path after the header.
func (l *line) peekEvent(size int) error {
	frame, err := l.in.Peek(min(4+size, l.in.Size()))
	if err != nil {
		l.left = 0
		return err
	}
	if len(frame) < 28 {
		return nil
	}
	kind := int32(binary.BigEndian.Uint32(frame[20:]))
	if path, _, ok := juteString(frame[28:]); ok {
		l.complete = func() { l.fired(kind, path) }
	}
	return nil
}

// answered registers the watch that a request asked for, as zk.Conn does.
func (l *line) answered(xid, code int32) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	key, ok := l.pending[xid]
	if !ok {
		return
	}
	delete(l.pending, xid)
	if code == codeOK && key.kind == watchExists {
		key.kind = watchData // zk.Conn files the watch on an existing node there
	}
	if code == codeOK || code == codeNoNode && key.kind == watchExists {
		l.wire.watches[key] = struct{}{}
	}
}

// fired forgets the watches that an event uses up, as zk.Conn does.
func (l *line) fired(event int32, path string) {
	var kinds []watchKind
	switch event {
	case eventCreated:
		kinds = []watchKind{watchExists}
	case eventDataChanged:
		kinds = []watchKind{watchExists, watchData}
	case eventChildrenChanged:
		kinds = []watchKind{watchChildren}
	case eventDeleted:
		kinds = []watchKind{watchExists, watchData, watchChildren}
	}
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	for _, kind := range kinds {
		delete(l.wire.watches, watchKey{path, kind})
	}
}

// juteString reads a string and returns what follows it.
func juteString(b []byte) (s string, rest []byte, ok bool) {
	if len(b) < 4 {
		return "", nil, false
	}
	n := int(int32(binary.BigEndian.Uint32(b)))
	if n < 0 || n > len(b)-4 {
		return "", nil, false
	}
	return string(b[4 : 4+n]), b[4+n:], true
}
