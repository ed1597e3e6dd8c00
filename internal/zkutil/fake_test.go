package zkutil

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// condition is what is wrong with one server of a fake.
type condition int

const (
	healthy  condition = iota
	refusing           // dials are refused
	hanging            // a handshake gets no answer
	silent             // nothing passes in either direction; dials time out
	isolated           // cut off from the quorum: reads, pings and sync are answered, writes and handshakes never
)

// fault is what happens to one request.
type fault struct {
	cut   bool          // instead of an answer the connection ends
	skip  bool          // with cut: the request is lost too, and not executed
	code  int32         // it is refused with this code
	delay time.Duration // the answer comes late, and everything behind it
}

// seen is one request as it reached a server.
type seen struct {
	at      time.Time
	op      int32
	path    string
	server  string
	session int64
}

// fake is a ZooKeeper ensemble for one test in a synctest bubble: real frames over
// net.Pipe, one tree, sessions that expire by the bubble's clock. It knows what the
// engine needs, and answers everything else with "unimplemented".
type fake struct {
	// lists is how often the followers tell the leader which sessions were active: a
	// session's expiry is the last such list with it in, plus T. Zero: every
	// request counts at once, as on a standalone server.
	lists   time.Duration
	granted time.Duration // the session timeout, whatever is asked for; zero: as asked

	mu       sync.Mutex // protects everything below
	changed  *sync.Cond // of servers and lines
	servers  map[string]condition
	views    map[string]map[string]*fakeNode // what an isolated server still sees
	tree     map[string]*fakeNode
	zxid     int64
	sessions map[int64]*fakeSession
	lines    map[*fakeLine]struct{}
	watches  map[string][]*fakeLine
	log      []seen
	dials    []string
	open     int                            // client ends that are not closed
	fault    func(r seen) fault             // of every request, under mu
	onWrite  func(frame []byte) (err error) // of every frame that a client writes
}

type fakeNode struct {
	data                []byte
	czxid, mzxid, owner int64
	version, children   int32 // children: how many were ever created
}

type fakeSession struct {
	id      int64
	timeout time.Duration
	expiry  time.Time
	active  bool // since the last list
	timer   *time.Timer
}

func (s *fakeSession) password() []byte {
	return binary.BigEndian.AppendUint64([]byte("password"), uint64(s.id))
}

func newFake(t *testing.T, servers ...string) *fake {
	t.Helper()
	f := &fake{
		servers: map[string]condition{}, views: map[string]map[string]*fakeNode{},
		tree: map[string]*fakeNode{"/": {}}, zxid: 1 << 32,
		sessions: map[int64]*fakeSession{}, lines: map[*fakeLine]struct{}{}, watches: map[string][]*fakeLine{},
	}
	f.changed = sync.NewCond(&f.mu)
	for _, server := range servers {
		f.servers[server] = healthy
	}
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for l := range f.lines {
			l.close()
		}
		for _, s := range f.sessions {
			s.timer.Stop()
		}
	})
	return f
}

// listen starts the lists of active sessions; the first comes after phase.
func (f *fake) listen(t *testing.T, every, phase time.Duration) {
	t.Helper()
	f.lists = every
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() { // ends with the test
		next := time.NewTimer(phase)
		defer next.Stop()
		for {
			select {
			case <-next.C:
			case <-stop:
				return
			}
			f.mu.Lock()
			for _, s := range f.sessions {
				if s.active {
					s.extend()
				}
			}
			f.mu.Unlock()
			next.Reset(every)
		}
	}()
}

func (s *fakeSession) extend() {
	s.active, s.expiry = false, time.Now().Add(s.timeout)
	s.timer.Reset(s.timeout)
}

// dial is the zk.Dialer of the clients.
func (f *fake) dial(_, server string, timeout time.Duration) (net.Conn, error) {
	f.mu.Lock()
	f.dials = append(f.dials, server)
	state, ok := f.servers[server]
	f.mu.Unlock()
	switch {
	case !ok || state == refusing:
		return nil, errors.New("connection refused")
	case state == silent:
		time.Sleep(timeout) //nolint:forbidigo // virtual time: an unanswered SYN
		return nil, errors.New("dial timeout")
	}
	near, far := net.Pipe()
	l := &fakeLine{
		f: f, server: server, conn: far,
		in: make(chan arrival, 4096), out: make(chan []byte, 4096), done: make(chan struct{}),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines[l] = struct{}{}
	f.open++
	go l.receive()
	go l.serve()
	go l.send()
	return &clientEnd{Conn: near, f: f}, nil
}

// clientEnd is what zk.Conn writes to: it counts as open until it is closed.
type clientEnd struct {
	net.Conn
	f    *fake
	once sync.Once
}

func (c *clientEnd) Close() error {
	c.once.Do(func() {
		c.f.mu.Lock()
		c.f.open--
		c.f.mu.Unlock()
	})
	return c.Conn.Close()
}

func (c *clientEnd) Write(frame []byte) (int, error) {
	c.f.mu.Lock()
	hook := c.f.onWrite
	c.f.mu.Unlock()
	if hook != nil {
		if err := hook(frame); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(frame)
}

func (f *fake) endLocked(s *fakeSession) {
	s.timer.Stop()
	delete(f.sessions, s.id)
	f.zxid++
	for path, n := range f.tree {
		if n.owner == s.id {
			f.removeLocked(path)
		}
	}
	for l := range f.lines {
		if l.session == s.id && f.servers[l.server] != isolated {
			l.close()
		}
	}
}

func (f *fake) removeLocked(path string) {
	delete(f.tree, path)
	f.notify(path, eventDeleted)
}

// notify sends an event to those who watch path, except through an isolated server.
func (f *fake) notify(path string, event int32) {
	f.watches[path] = slices.DeleteFunc(f.watches[path], func(l *fakeLine) bool {
		if f.servers[l.server] == isolated {
			return false
		}
		l.event(path, event)
		return true
	})
}

// children returns the names below dir, in no order.
func (f *fake) children(dir string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return childrenOf(f.tree, dir)
}

func childrenOf(tree map[string]*fakeNode, dir string) (names []string) {
	for path := range tree {
		if name, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/"); ok && name != "" && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names
}
