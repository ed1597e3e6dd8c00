package zktest

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// Server is a ZooKeeper in this process: one server, or an ensemble of several that
// share their tree ([WithServers]). All methods may be called from any goroutine, rules
// given to [Server.Inject] included.
type Server struct {
	cfg     config
	began   time.Time
	secret  [16]byte
	members []*member
	work    sync.WaitGroup // every goroutine that the server has started

	mu       sync.Mutex // protects everything below, and all lines, sessions and members
	changed  *sync.Cond // of connections, and of what passes
	closed   bool
	tree     *tree
	zxid     int64
	lastID   int64
	sessions map[int64]*session
	lines    map[*line]struct{}
	claims   map[int64][]*line // the connections of each session, in the order of their handshakes' arrival
	watches  watches
	cut      cut
	deafness []*eventLoss
	trail    []Request
	rules    []*rule // replaced, never changed
	logs     []*Log
	pace     pace
	reporter *time.Timer
	reaper   *time.Timer
}

// NewServer starts a server that is closed at the end of the test, and fails the test
// if it can't. A test that has failed by then shows the latest requests in its log. In a
// bubble of testing/synctest the server's clock is the bubble's, and clients reach it
// through [Server.Dialer] alone.
func NewServer(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s, err := Start(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		s.logTrail(tb)
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Start starts a server for a program; [Server.Close] ends it.
func Start(opts ...Option) (*Server, error) {
	cfg := defaults()
	for _, opt := range opts {
		if err := opt(&cfg); err != nil {
			return nil, err
		}
	}
	s := &Server{
		cfg: cfg, began: time.Now(), tree: newTree(), zxid: 1 << epochShift, lastID: firstID,
		sessions: map[int64]*session{}, lines: map[*line]struct{}{}, claims: map[int64][]*line{}, watches: watches{},
	}
	s.changed = sync.NewCond(&s.mu)
	_, _ = rand.Read(s.secret[:]) // never fails
	if cfg.servers > 1 && !strings.HasSuffix(cfg.address, ":0") {
		return nil, fmt.Errorf("zktest: %d servers can't share the address %s", cfg.servers, cfg.address)
	}
	if err := s.start(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.cfg.servers {
		m := &member{srv: s, address: s.cfg.address, minTimeout: s.cfg.minTimeout, maxTimeout: s.cfg.maxTimeout}
		s.members = append(s.members, m)
		if inBubble() {
			m.address = fmt.Sprintf("[::1%%use-Server.Dialer]:%d", i+1)
			continue
		}
		if err := m.listen(); err != nil {
			return err
		}
	}
	s.reaper = time.AfterFunc(s.cfg.reap, s.reapRegularly)
	if s.cfg.touch > 0 {
		s.reporter = time.AfterFunc(s.cfg.touch, s.report)
	}
	return nil
}

// inBubble tells whether the clock is that of a synctest bubble, which begins in 2000.
// There a goroutine that waits for a real connection would stop the time.
func inBubble() bool { return time.Now().Year() < 2020 }

// Addr is the address of the first server, host:port. In a synctest bubble nothing
// listens there: it is a name for [Server.Dialer], and says so to those who dial it.
func (s *Server) Addr() string { return s.Addrs()[0] }

// Addrs are the addresses of all servers.
func (s *Server) Addrs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	addresses := make([]string, len(s.members))
	for i, m := range s.members {
		addresses[i] = m.address
	}
	return addresses
}

// Dialer connects to the server without a network, in a synctest bubble or outside. It
// takes the addresses of [Server.Addrs], and any other for that of the first server.
func (s *Server) Dialer() zk.Dialer {
	return func(_, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := s.dial(address, timeout)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "pipe", Err: err}
		}
		return conn, nil
	}
}

func (s *Server) dial(address string, timeout time.Duration) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.member(address)
	if late := s.stall(m, timeout); late {
		return nil, os.ErrDeadlineExceeded
	}
	if s.closed || m.stopped {
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	s.carry(m, far)
	return clientEnd{near}, nil
}

// clientEnd is the client's end of a connection.
type clientEnd struct{ net.Conn }

// WritesPromptly says that a short write does not wait for the server, which takes frames even while it is silent. The
// client then writes as it does over TCP.
func (clientEnd) WritesPromptly() {}

// stall keeps a dialer waiting while nothing comes through, as a lost SYN does, and
// tells whether its time is over; 0 is no limit. Called under the lock, which it gives up.
func (s *Server) stall(m *member, timeout time.Duration) (late bool) {
	if timeout > 0 {
		timer := time.AfterFunc(timeout, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			late = true
			s.changed.Broadcast()
		})
		defer timer.Stop()
	}
	for (s.cut.everybody || m.cut.everybody) && !s.closed && !late {
		s.changed.Wait()
	}
	return late
}

// member finds a server by its address. Called under the lock.
func (s *Server) member(address string) *member {
	for _, m := range s.members {
		if m.address == address {
			return m
		}
	}
	return s.members[0]
}

// Close ends every connection, and waits for every goroutine of the server and so for
// the rules that they are with. It is idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	s.shut()
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// shut is called under the lock.
func (s *Server) shut() {
	s.closed = true
	for _, m := range s.members {
		m.unlisten()
	}
	for l := range s.lines {
		l.close()
	}
	for _, n := range s.sessions {
		n.timer.Stop()
	}
	for _, timer := range []*time.Timer{s.reaper, s.reporter} {
		if timer != nil {
			timer.Stop()
		}
	}
	s.changed.Broadcast()
}

// change begins a transaction with the latest zxid. Called under the lock.
func (s *Server) change() *change {
	return &change{tree: s.tree, zxid: s.zxid, now: time.Now().UnixMilli(), ttl: s.cfg.ttl}
}

// commit tells the watchers what a transaction did. Called under the lock.
func (s *Server) commit(c *change) {
	for _, e := range c.events {
		s.watches.tell(e)
	}
}

// running tells whether any server runs: nobody counts the time of sessions otherwise.
// Called under the lock.
func (s *Server) running() bool {
	for _, m := range s.members {
		if !m.stopped {
			return !s.closed
		}
	}
	return false
}

// reapRegularly is called by the reaper.
func (s *Server) reapRegularly() {
	s.Reap()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.reaper.Reset(s.cfg.reap)
	}
}

// Reap removes the containers that had children and have none any more, and the
// znodes that have outlived their time to live: at once, what the server does every
// [WithReapInterval].
func (s *Server) Reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return
	}
	var spent []string
	for path, n := range s.tree.nodes {
		if len(n.children) == 0 && n.isSpent(time.Now()) {
			spent = append(spent, path)
		}
	}
	slices.Sort(spent)
	for _, path := range spent {
		s.zxid++
		c := s.change()
		c.remove(path)
		s.commit(c)
	}
}
