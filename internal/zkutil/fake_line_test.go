package zkutil

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// Operation codes that only the server's side has to know.
const (
	opCreate          = 1
	opDelete          = 2
	opSetData         = 5
	opSync            = 9
	opCheck           = 13
	opMulti           = 14
	opCreateContainer = 19
	opClose           = -11

	codeUnimplemented = -6
	codeNodeExists    = -110
	codeNotEmpty      = -111
	codeSessionOver   = -112
)

// fakeLine is the server's side of one connection.
type fakeLine struct {
	f      *fake
	server string
	conn   net.Conn
	in     chan arrival
	out    chan []byte
	done   chan struct{} // closed by close

	// Guarded by f.mu.
	closed  bool
	session int64
	stuck   bool // a write is unanswered, so everything behind it is
}

// arrival is a frame, and when it came in.
type arrival struct {
	frame []byte
	at    time.Time
}

// close is called under f.mu.
func (l *fakeLine) close() {
	if l.closed {
		return
	}
	l.closed = true
	close(l.done)
	_ = l.conn.Close()
	delete(l.f.lines, l)
	l.f.changed.Broadcast()
}

// receive takes frames off the wire, as a socket's buffer does, even while the line
// is silent.
func (l *fakeLine) receive() {
	defer close(l.in)
	for {
		head := make([]byte, 4)
		if _, err := io.ReadFull(l.conn, head); err != nil {
			break
		}
		frame := make([]byte, binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(l.conn, frame); err != nil {
			break
		}
		l.f.mu.Lock() // what is answered later has happened later, for -race too
		at := time.Now()
		l.f.mu.Unlock()
		l.in <- arrival{frame, at}
	}
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	l.close()
}

func (l *fakeLine) send() {
	for {
		select {
		case frame := <-l.out:
			if !l.passable() {
				return
			}
			if _, err := l.conn.Write(frame); err != nil {
				return
			}
		case <-l.done:
			return
		}
	}
}

// passable waits while the line is silent; false: it has ended.
func (l *fakeLine) passable() bool {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for l.f.servers[l.server] == silent && !l.closed {
		l.f.changed.Wait()
	}
	return !l.closed
}

func (l *fakeLine) push(frame []byte) {
	if l.closed {
		return
	}
	l.out <- append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}

func (l *fakeLine) event(path string, event int32) {
	l.push(jute(xidEvent, int64(-1), codeOK, event, 3, path))
}

func (l *fakeLine) serve() {
	greeted := false
	for a := range l.in {
		if !l.passable() {
			continue
		}
		if !greeted {
			greeted = l.greet(a.frame)
			continue
		}
		answer, delay := l.handle(a)
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-l.done:
			}
		}
		l.f.mu.Lock()
		if answer != nil {
			answer(l)
		}
		l.f.mu.Unlock()
	}
}

// greet answers the connect request.
func (l *fakeLine) greet(frame []byte) bool {
	f := l.f
	f.mu.Lock()
	defer f.mu.Unlock()
	d := &decoder{frame}
	d.int32()
	d.int64()
	asked, id, password := time.Duration(d.int32())*time.Millisecond, d.int64(), d.string()
	if state := f.servers[l.server]; state == hanging || state == isolated {
		return false
	}
	s, known := f.sessions[id]
	switch {
	case id == 0:
		if f.granted != 0 {
			asked = f.granted
		}
		f.zxid++
		s = &fakeSession{id: f.zxid, timeout: asked}
		s.timer = time.AfterFunc(asked, func() { f.expire(s.id) })
		f.sessions[s.id] = s
	case !known || string(s.password()) != password:
		l.push(jute(int32(0), int32(0), int64(0), make([]byte, 16)))
		return false
	}
	l.session = s.id
	s.extend()
	l.push(jute(int32(0), int32(s.timeout/time.Millisecond), s.id, s.password()))
	return true
}

// handle executes one request. It returns what follows, nil for nothing, and how long
// that takes.
func (l *fakeLine) handle(a arrival) (answer func(*fakeLine), delay time.Duration) {
	f := l.f
	f.mu.Lock()
	defer f.mu.Unlock()
	d := &decoder{a.frame}
	xid, op := d.int32(), d.int32()
	r := seen{at: a.at, op: op, path: pathOf(op, *d), server: l.server, session: l.session}
	s, alive := f.sessions[l.session]
	cutOff := f.servers[l.server] == isolated
	switch {
	case l.closed, l.stuck:
		return nil, 0
	case cutOff && isWrite(op):
		f.log = append(f.log, r)
		l.stuck = true
		return nil, 0
	case !alive && !cutOff:
		l.close()
		return nil, 0
	case alive && !cutOff:
		s.active = true
		if f.lists == 0 {
			s.extend()
		}
	}
	f.log = append(f.log, r)
	var trouble fault
	if f.fault != nil && op != opPing {
		trouble = f.fault(r)
	}
	var body []byte
	code := trouble.code
	if code == codeOK && (!trouble.cut || !trouble.skip) {
		body, code = l.execute(op, d)
	}
	zxid := f.zxid
	if op == opSetAuth {
		zxid = 0 // it is no transaction, and passes no pipeline
	}
	frame := append(jute(xid, zxid, code), body...)
	switch {
	case trouble.cut:
		return (*fakeLine).close, trouble.delay
	case op == opClose:
		l.push(frame)
		f.endLocked(s)
		return nil, 0
	default:
		return func(l *fakeLine) { l.push(frame) }, trouble.delay
	}
}

func isWrite(op int32) bool {
	switch op {
	case opCreate, opCreateContainer, opDelete, opSetData, opMulti, opClose:
		return true
	default:
		return false
	}
}

func pathOf(op int32, d decoder) string {
	switch op {
	case opPing, opClose, opSetWatches, opSetAuth:
		return ""
	case opMulti:
		d.int32()
		d.next(5)
	}
	return d.string()
}

// jute encodes what the protocol needs: integers, strings, buffers, lists of strings.
func jute(values ...any) (b []byte) {
	for _, value := range values {
		switch v := value.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(int32(v)))
		case int32:
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		case int64:
			b = binary.BigEndian.AppendUint64(b, uint64(v))
		case bool:
			b = append(b, map[bool]byte{true: 1}[v])
		case string:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
		case []byte:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
		case []string:
			b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
			for _, s := range v {
				b = append(b, jute(s)...)
			}
		default:
			panic(fmt.Sprintf("no encoding for %T", value))
		}
	}
	return b
}

// decoder panics on a malformed frame: zk.Conn sends none.
type decoder struct{ b []byte }

func (d *decoder) next(n int) []byte {
	head := d.b[:n]
	d.b = d.b[n:]
	return head
}

func (d *decoder) int32() int32   { return int32(binary.BigEndian.Uint32(d.next(4))) }
func (d *decoder) int64() int64   { return int64(binary.BigEndian.Uint64(d.next(8))) }
func (d *decoder) bool() bool     { return d.next(1)[0] != 0 }
func (d *decoder) string() string { return string(d.next(max(int(d.int32()), 0))) }

func (d *decoder) strings() []string {
	list := make([]string, d.int32())
	for i := range list {
		list[i] = d.string()
	}
	return list
}
