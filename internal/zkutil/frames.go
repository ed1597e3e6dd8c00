package zkutil

import (
	"encoding/binary"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// watchKind tells zk.Conn's three tables of watches apart.
type watchKind uint8

const (
	watchData watchKind = iota
	watchExists
	watchChildren
	watchAgain // the request to set them again, of no path
)

type watchKey struct {
	path string
	kind watchKind
}

// outgoing notes a request that asks for a watch, and returns the request's xid and
// operation code.
func (l *line) outgoing(frame []byte) (xid, op int32) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	d := proto.NewDecoder(frame)
	_, xid, op = d.Int32(), d.Int32(), d.Int32() // the length first
	var kind watchKind
	switch op {
	case proto.OpGetData:
		kind = watchData
	case proto.OpExists:
		kind = watchExists
	case proto.OpGetChildren, proto.OpGetChildren2:
		kind = watchChildren
	case proto.OpSetWatches, proto.OpSetWatches2:
		l.pending[xid] = watchKey{kind: watchAgain}
		return xid, op
	case proto.OpAuth:
		l.auth = xid
		return xid, op
	case proto.OpCloseSession:
		l.closing = true
		l.armLocked()
		return xid, op
	default:
		return xid, op
	}
	if path := d.String(); d.Len() == 1 && d.Bool() {
		l.pending[xid] = watchKey{path, kind}
	}
	return xid, op
}

// next waits for a frame and finds out what it means. What follows from it takes
// effect when zk.Conn has all of it: then zk.Conn acts on it before it reads on.
func (l *line) next() error {
	head, err := l.in.Peek(4)
	if err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(head))
	l.left, l.isAnswer, l.layout = 4+size, false, layout{}
	if !l.isOpen() {
		return l.peekHandshake(size)
	}
	const header = 4 + 16
	if size < header-4 {
		return l.refuse()
	}
	if head, err = l.in.Peek(header); err != nil {
		l.left = 0
		return err
	}
	d := proto.NewDecoder(head[4:])
	xid, zxid, code := d.Int32(), d.Int64(), d.Int32()
	l.isAnswer = xid >= 0
	var request sentFrame
	if xid != proto.XidEvent {
		request, _ = l.contact.receive(xid)
	}
	switch {
	case xid == proto.XidEvent:
		l.layout = layoutOf(header, size-(header-4), eventParts)
		return l.peekEvent(size)
	case xid >= 0:
		if code == proto.CodeOK {
			l.layout = layoutOf(header, size-(header-4), answerParts(request.op))
		}
		credential := l.isCredential(xid)
		if zxid > 0 && !credential {
			if err := l.awaitArmed(); err != nil {
				l.left = 0
				return err // the answer is lost
			}
		}
		if credential || l.isClosing() {
			// Before a credential is answered zk.Conn sends nothing else, and after a close
			// nothing more, so their answers can't wait. It must not take a zxid from there
			// either, which for a credential some servers fill in.
			clear(head[8:16])
		}
		if code != proto.CodeOK && l.setsWatches(xid) {
			l.withoutWatches()
		}
		l.complete = func() { l.answered(xid, code) }
	}
	return nil
}

// refuse ends the connection to a server whose frame is none: zk.Conn gets nothing of the
// rest.
func (l *line) refuse() error {
	l.left, l.complete = 0, nil
	if !l.isOpen() {
		return errNotZooKeeper
	}
	l.wire.failed(l.address, errMalformed)
	_ = l.Close()
	return errMalformed
}

// setsWatches reports whether xid is a request to set the watches again.
func (l *line) setsWatches(xid int32) bool {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	return l.pending[xid].kind == watchAgain
}

// peekHandshake reads the connect response: protocol version, timeout, session id, password.
func (l *line) peekHandshake(size int) error {
	const shortest, limit = 4 + 4 + 8 + 4, 1 << 10
	if size < shortest || size > limit { // zk.Conn would make room for whatever it is told
		return l.refuse()
	}
	frame, err := l.in.Peek(4 + size)
	if err != nil {
		l.left = 0
		return err
	}
	d := proto.NewDecoder(frame[8:])
	timeout, id := time.Duration(d.Int32())*time.Millisecond, d.Int64()
	if d.Buffer(); d.Err() != nil || id != 0 && timeout <= 0 {
		return l.refuse()
	}
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
	d := proto.NewDecoder(frame[20:])
	kind, _, path := d.Int32(), d.Int32(), d.String()
	if d.Err() == nil {
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
	if key.kind == watchAgain {
		return
	}
	if code == proto.CodeOK && key.kind == watchExists {
		key.kind = watchData // zk.Conn files the watch on an existing node there
	}
	if code == proto.CodeOK || code == proto.CodeNoNode && key.kind == watchExists {
		l.wire.watches[key] = struct{}{}
	}
}

// firedBy are the kinds of watches that an event uses up, as in zk.Conn.
func firedBy(event int32) []watchKind {
	switch event {
	case proto.EventCreated:
		return []watchKind{watchExists}
	case proto.EventDataChanged:
		return []watchKind{watchExists, watchData}
	case proto.EventChildrenChanged:
		return []watchKind{watchChildren}
	case proto.EventDeleted:
		return []watchKind{watchExists, watchData, watchChildren}
	default:
		return nil
	}
}

// fired forgets the watches that an event uses up.
func (l *line) fired(event int32, path string) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	for _, kind := range firedBy(event) {
		delete(l.wire.watches, watchKey{path, kind})
	}
}
