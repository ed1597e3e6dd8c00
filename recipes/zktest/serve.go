package zktest

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// serve executes a request, subject to its fault. Called under the lock.
func (l *line) serve(a *arrival) {
	frame, r, trouble := a.frame, a.request, a.fault
	l.srv.observe(r)
	switch {
	case trouble.Lost == RequestLost:
		l.after(trouble.Delay, l.finish)
		return
	case l.stuck, trouble.Lost == NoAnswer,
		l.server.isolated() && (r.Op.isWrite() || r.Op == OpConnect) && !l.answersAlone(frame):
		l.stuck = true
		return
	}
	var answer []byte
	var last bool
	if l.greeted {
		answer, last = l.answer(frame, r.Op, trouble)
	} else {
		answer, last = l.greet(frame)
		trouble.Delay = max(trouble.Delay, l.slowHandshake(a))
	}
	l.after(trouble.Delay, func() {
		if trouble.Lost == ReplyLost || answer == nil {
			l.finish()
			return
		}
		if len(answer) > 0 && trouble.Lost != AnswerLost {
			l.push(answer)
		}
		if last {
			l.finish()
		}
	})
}

// after calls then, at once or after a delay. Called under the lock.
func (l *line) after(delay time.Duration, then func()) {
	if delay <= 0 {
		then()
		return
	}
	l.waiting = true
	time.AfterFunc(delay, func() { // does nothing after the end of the connection
		l.srv.mu.Lock()
		defer l.srv.mu.Unlock()
		l.waiting = false
		if !l.closed && !l.last {
			then()
			l.push(l.held)
			l.held = nil
			l.wake()
		}
	})
}

// claimed returns the session id in a handshake.
func claimed(frame []byte) int64 {
	d := proto.NewDecoder(frame)
	d.Int32()
	d.Int64()
	d.Int32()
	return d.Int64()
}

// greet answers the handshake; a nil answer means that the server hangs up.
func (l *line) greet(frame []byte) (answer []byte, last bool) {
	s := l.srv
	d := proto.NewDecoder(frame)
	d.Int32() // the protocol's version
	seen, asked, id, password := d.Int64(), d.Int32(), d.Int64(), d.Buffer()
	if d.Err() != nil || !s.hasQuorum() || seen > s.zxid && !s.cfg.traits.ignoresHistory {
		return nil, true
	}
	modern := d.Len() > 0 // a modern client says whether it accepts read-only servers, and gets an answer
	timeout := min(max(time.Duration(asked)*time.Millisecond, l.server.minTimeout), l.server.maxTimeout)
	n := s.sessions[id]
	if s.cfg.traits.endsWithLine {
		id = 0
	}
	switch {
	case id == 0:
		n = s.open(timeout)
	case n != nil && n.line != nil && n.line.server != l.server:
		n.line.retire() // even for a wrong password
	case n != nil && n.line != nil:
		n.line.dismiss()
	}
	e := proto.NewEncoder().Int32(0)
	if n == nil || id != 0 && !bytes.Equal(password, s.password(id)) {
		e.Int32(0).Int64(0).Buffer(make([]byte, proto.PasswordLength))
		last = true
	} else {
		n.line, n.timeout, l.timeout = l, timeout, timeout
		s.extend(n, timeout)
		l.session, l.greeted = n, true
		l.who = append(l.who, certified(l.conn)...)
		if l.claims != n.id {
			l.claim(n.id)
		}
		password := s.password(n.id)
		if s.cfg.traits.endsWithLine {
			password = make([]byte, proto.PasswordLength)
		}
		e.Int32(int32(timeout / time.Millisecond)).Int64(n.id).Buffer(password)
	}
	if modern && !s.cfg.traits.endsWithLine { // a ClickHouse Keeper's answer ends here
		e.Bool(false)
	}
	return e.Frame(), last
}

// slowHandshake returns the remaining delay of the answer to a handshake. Called under
// the lock.
func (l *line) slowHandshake(a *arrival) time.Duration {
	if l.srv.pace.handshake == 0 {
		return 0
	}
	return time.Until(a.reached.Add(l.srv.pace.handshake))
}

// answer executes a request. If last is true, the connection ends after the answer.
func (l *line) answer(frame []byte, op Op, trouble Fault) (answer []byte, last bool) {
	s := l.srv
	d := proto.NewDecoder(frame)
	xid := d.Int32()
	d.Int32()
	switch {
	case l.mustLogIn(op):
		return refuseWithoutLogin(xid)
	case op == OpClose:
		n := l.session
		l.session = nil
		if n.line == l {
			n.line = nil // so that end does not close the connection before the answer is sent
		}
		s.end(n)
		return header(xid, s.zxid, proto.CodeOK).Frame(), true
	case op == OpPing:
		if s.cfg.traits.commitsPings {
			if l.server.isolated() {
				l.stuck = true
				return []byte{}, false
			}
			s.nextZxid()
		}
		return header(proto.XidPing, l.server.lastZxid(), proto.CodeOK).Frame(), false
	case trouble.Refusal != 0:
		return header(xid, l.server.lastZxid(), int32(trouble.Refusal)).Frame(), false
	case op == OpAuth: // authentication is no transaction, and passes no pipeline
		code := l.authenticate(d)
		if code == proto.CodeMarshallingError {
			return nil, true
		}
		return header(xid, 0, code).Frame(), code != proto.CodeOK
	case op == OpSASL:
		return l.logIn(xid, d)
	case int32(op) == proto.OpCheck:
		s.nextZxid()
		r := s.change().check(d, caller{l.session.id, l.who})
		if r.code == proto.CodeOK {
			return []byte{}, false
		}
		return header(xid, s.zxid, r.code).Frame(), false
	case !s.cfg.knows(op):
		return l.answerUnknown(xid)
	}
	body, code := l.execute(int32(op), d)
	e := header(xid, l.server.lastZxid(), code)
	if body != nil {
		e.Raw(body.Body())
	}
	return e.Frame(), false
}

// answerUnknown answers a request for an unknown operation. Called under the lock.
func (l *line) answerUnknown(xid int32) (answer []byte, last bool) {
	switch l.srv.cfg.unknown {
	case UnknownBadArguments:
		return header(xid, l.server.lastZxid(), proto.CodeBadArguments).Frame(), false
	case UnknownHangUp:
		return nil, true
	default:
		return header(xid, -1, proto.CodeUnimplemented).Frame(), true
	}
}

func (l *line) execute(op int32, d *proto.Decoder) (body *proto.Encoder, code int32) {
	switch {
	case op == proto.OpSetWatches, op == proto.OpSetWatches2:
		return nil, l.setWatches(op, d)
	case op == proto.OpAddWatch:
		return l.addWatch(d)
	case op == proto.OpCheckWatches, op == proto.OpRemoveWatches:
		return nil, l.askWatches(op, d)
	case op == proto.OpMulti:
		return l.multi(d)
	case op == proto.OpMultiRead:
		return l.multiRead(d)
	case op == proto.OpWhoAmI:
		return l.whoAmI(), proto.CodeOK
	case Op(op).isWrite():
		return l.write(op, d)
	default:
		return l.read(op, d)
	}
}

// write executes a single write.
func (l *line) write(op int32, d *proto.Decoder) (body *proto.Encoder, code int32) {
	s := l.srv
	s.nextZxid()
	c := s.change()
	r := c.write(op, d, caller{l.session.id, l.who})
	if r.code != proto.CodeOK {
		return nil, r.code
	}
	s.commit(c)
	body = proto.NewEncoder()
	switch op {
	case proto.OpCreate:
		body.String(r.path)
	case proto.OpCreate2, proto.OpCreateContainer, proto.OpCreateTTL:
		body.String(r.path).Stat(r.stat)
	case proto.OpSetData, proto.OpSetACL:
		body.Stat(r.stat)
	}
	return body, proto.CodeOK
}

// multi executes a write of many parts. Each part's answer has its own header. A null path
// makes the server fail before it has a transaction.
func (l *line) multi(d *proto.Decoder) (body *proto.Encoder, code int32) {
	s := l.srv
	ahead := *d
	parts, code := readParts(&ahead)
	if code == proto.CodeOK && slices.ContainsFunc(parts, func(p readPart) bool { return p.path == proto.Null }) {
		s.unused++
		return nil, proto.CodeMarshallingError
	}
	isAlone := s.cfg.traits.answersChecks && areChecks(parts)
	if !isAlone {
		s.nextZxid()
	}
	c := s.change()
	if isAlone && l.server.isolated() {
		c.tree = l.server.view
	}
	c.inMulti = true
	results, code := c.multi(d, caller{l.session.id, l.who})
	if code != proto.CodeOK {
		c.rollback()
		return nil, code
	}
	s.commit(c)
	body = proto.NewEncoder()
	for _, r := range results {
		op := r.op
		switch op { // like the real server
		case proto.OpCreate2:
			op = proto.OpCreate
		case proto.OpCreateContainer, proto.OpCreateTTL:
			op = proto.OpCreate2
		}
		body.Int32(op).Bool(false).Int32(r.code)
		switch op {
		case proto.OpError:
			body.Int32(r.code)
		case proto.OpCreate:
			body.String(r.path)
		case proto.OpCreate2:
			body.String(r.path).Stat(r.stat)
		case proto.OpSetData:
			body.Stat(r.stat)
		}
	}
	return body.Int32(proto.OpError).Bool(true).Int32(proto.OpError), proto.CodeOK
}

// answersAlone reports whether the server answers a request without the quorum.
func (l *line) answersAlone(frame []byte) bool {
	d := proto.NewDecoder(frame)
	d.Int32() // the xid
	if !l.srv.cfg.traits.answersChecks || d.Int32() != proto.OpMulti {
		return false
	}
	parts, code := readParts(d)
	return code == proto.CodeOK && areChecks(parts)
}

func areChecks(parts []readPart) bool {
	return !slices.ContainsFunc(parts, func(p readPart) bool { return p.op != proto.OpCheck })
}

// read executes one read on the tree as this server sees it, and sets the requested
// watch.
func (l *line) read(op int32, d *proto.Decoder) (body *proto.Encoder, code int32) {
	path, watch := d.Text(), false
	switch op {
	case proto.OpExists, proto.OpGetData, proto.OpGetChildren, proto.OpGetChildren2:
		watch = d.Bool()
	}
	switch {
	case d.Err() != nil, path == proto.Null && op != proto.OpSync:
		return nil, proto.CodeMarshallingError
	case path == proto.Null:
		return proto.NewEncoder().Buffer(nil), proto.CodeOK
	case op == proto.OpSync:
		return proto.NewEncoder().String(path), proto.CodeOK
	}
	return l.look(op, path, watch)
}

// look reads a znode, and sets a watch if watch is true.
func (l *line) look(op int32, path string, watch bool) (body *proto.Encoder, code int32) {
	body = proto.NewEncoder()
	n := l.server.find(path)
	if op == proto.OpExists {
		switch {
		case strings.ContainsRune(path, 0):
			return nil, proto.CodeBadArguments
		case n != nil && l.srv.cfg.traits.guardsExists && !permits(n.acl, zk.PermRead, l.who):
			return nil, proto.CodeNoAuth
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

// multiRead answers several reads at once; a refused part does not affect the others. As
// on a real server, parts never set watches, even if their watch flag is set.
func (l *line) multiRead(d *proto.Decoder) (body *proto.Encoder, code int32) {
	parts, code := readParts(d)
	if code != proto.CodeOK {
		return nil, code
	}
	body = proto.NewEncoder()
	for _, p := range parts {
		if p.path == proto.Null || !isReadPart(p.op) {
			code = proto.CodeMarshallingError // as on the real server, the results read so far follow the error code
			break
		}
		result, refused := l.look(p.op, p.path, false)
		if refused != proto.CodeOK {
			body.Int32(proto.OpError).Bool(false).Int32(refused).Int32(refused)
			continue
		}
		body.Int32(p.op).Bool(false).Int32(proto.CodeOK).Raw(result.Body())
	}
	return body.Int32(proto.OpError).Bool(true).Int32(proto.OpError), code
}

// readPart is a part of a MultiRead.
type readPart struct {
	op   int32
	path string
}

// readParts reads all parts of a MultiRead. As long as no read is among them, the parts
// of a Multi pass, too: multiRead rejects them.
func readParts(d *proto.Decoder) (parts []readPart, code int32) {
	for {
		op, end := d.Int32(), d.Bool()
		d.Int32() // an error, unused in requests
		switch {
		case d.Err() != nil:
			return nil, proto.CodeMarshallingError
		case end:
			return parts, proto.CodeOK
		case len(parts) > 0 && isReadPart(op) != isReadPart(parts[0].op):
			return nil, proto.CodeMarshallingError
		}
		p := readPart{op: op, path: d.Text()}
		if !skipPart(op, d) || d.Err() != nil {
			return nil, proto.CodeMarshallingError
		}
		parts = append(parts, p)
	}
}

// isReadPart reports whether op may be part of a MultiRead.
func isReadPart(op int32) bool { return op == proto.OpGetData || op == proto.OpGetChildren }

// skipPart reads the rest of a part, after its path. It returns false for an unknown
// operation.
func skipPart(op int32, d *proto.Decoder) bool {
	switch op {
	case proto.OpGetData, proto.OpGetChildren:
		d.Bool() // whether to watch
	case proto.OpDelete, proto.OpCheck:
		d.Int32()
	case proto.OpSetData:
		d.Buffer()
		d.Int32()
	case proto.OpCreate, proto.OpCreate2, proto.OpCreateContainer:
		d.Buffer()
		d.ACL()
		d.Int32()
	case proto.OpCreateTTL:
		d.Buffer()
		d.ACL()
		d.Int32()
		d.Int64()
	default:
		return false
	}
	return true
}
