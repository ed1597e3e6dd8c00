package zktest

import (
	"bytes"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// serve executes a request, or lets happen to it what a fault says. Called under the
// lock.
func (l *line) serve(a *arrival) {
	frame, r, trouble := a.frame, a.request, a.fault
	l.srv.observe(r)
	switch {
	case trouble.Lost == RequestLost:
		l.after(trouble.Delay, l.finish)
		return
	case l.stuck, trouble.Lost == NoAnswer,
		l.server.isolated() && (r.Op.isWrite() || r.Op == OpConnect):
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

// after does what follows from a request, at once or later. Called under the lock.
func (l *line) after(delay time.Duration, then func()) {
	if delay <= 0 {
		then()
		return
	}
	l.waiting = true
	time.AfterFunc(delay, func() { // does nothing once the connection has ended
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

// claimed is the session that a handshake asks for.
func claimed(frame []byte) int64 {
	d := proto.NewDecoder(frame)
	d.Int32()
	d.Int64()
	d.Int32()
	return d.Int64()
}

// greet answers the handshake; nil: it is refused without a word.
func (l *line) greet(frame []byte) (answer []byte, last bool) {
	s := l.srv
	d := proto.NewDecoder(frame)
	d.Int32() // the protocol's version
	seen, asked, id, password := d.Int64(), d.Int32(), d.Int64(), d.Buffer()
	if d.Err() != nil || seen > s.zxid {
		return nil, true
	}
	modern := d.Len() > 0 // it says whether it wants read-only servers, and is told
	timeout := min(max(time.Duration(asked)*time.Millisecond, l.server.minTimeout), l.server.maxTimeout)
	n := s.sessions[id]
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
		n.line, n.timeout = l, timeout
		s.extend(n)
		l.session, l.greeted = n, true
		if l.claims != n.id {
			l.claim(n.id)
		}
		e.Int32(int32(timeout / time.Millisecond)).Int64(n.id).Buffer(s.password(n.id))
	}
	if modern {
		e.Bool(false)
	}
	return e.Frame(), last
}

// answer executes a request. last: the connection ends behind the answer.
func (l *line) answer(frame []byte, op Op, trouble Fault) (answer []byte, last bool) {
	s := l.srv
	d := proto.NewDecoder(frame)
	xid := d.Int32()
	d.Int32()
	switch {
	case op == OpClose:
		n := l.session
		l.session = nil
		if n.line == l {
			n.line = nil // the answer has to go out
		}
		s.end(n)
		return header(xid, s.zxid, proto.CodeOK).Frame(), true
	case op == OpPing:
		return header(proto.XidPing, s.seenBy(l.server), proto.CodeOK).Frame(), false
	case trouble.Refusal != 0:
		return header(xid, s.seenBy(l.server), int32(trouble.Refusal)).Frame(), false
	case op == OpAuth: // it is no transaction, and passes no pipeline
		code := l.authenticate(d)
		if code == proto.CodeMarshallingError {
			return nil, true
		}
		return header(xid, 0, code).Frame(), code != proto.CodeOK
	case int32(op) == proto.OpCheck:
		s.zxid++
		r := s.change().check(d, caller{l.session.id, l.who})
		if r.code == proto.CodeOK {
			return []byte{}, false
		}
		return header(xid, s.zxid, r.code).Frame(), false
	case !op.isWrite() && !op.isRead():
		return header(xid, -1, proto.CodeUnimplemented).Frame(), true
	}
	body, code := l.execute(int32(op), d)
	e := header(xid, s.seenBy(l.server), code)
	if body != nil {
		e.Raw(body.Body())
	}
	return e.Frame(), false
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
	case Op(op).isWrite():
		return l.write(op, d)
	default:
		return l.read(op, d)
	}
}

// write executes a write of one part.
func (l *line) write(op int32, d *proto.Decoder) (body *proto.Encoder, code int32) {
	s := l.srv
	s.zxid++
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

// multi executes a write of many parts. Each part's answer has a header of its own.
func (l *line) multi(d *proto.Decoder) (body *proto.Encoder, code int32) {
	s := l.srv
	s.zxid++
	c := s.change()
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
		switch op { // as odd as in the real server
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

func (l *line) authenticate(d *proto.Decoder) (code int32) {
	d.Int32() // unused
	scheme, credentials := d.String(), d.Buffer()
	if d.Err() != nil {
		return proto.CodeMarshallingError
	}
	address := l.who[0].id
	one, ok := identify(scheme, credentials, address)
	if !ok {
		return proto.CodeAuthFailed
	}
	if !slices.Contains(l.who, one) {
		l.who = append(l.who, one)
	}
	return proto.CodeOK
}
