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

// Server is an in-process ZooKeeper: one server, or an ensemble of several that share
// their tree ([WithServers]). All methods may be called from any goroutine, including
// from rules given to [Server.Inject]; rules may not call Close.
type Server struct {
	cfg     config
	began   time.Time
	secret  [16]byte
	members []*member
	work    sync.WaitGroup // every goroutine started by the server

	mu       sync.Mutex // protects everything below, and all lines, sessions and members
	changed  *sync.Cond // signals changes of connections and of silences
	closed   bool
	tree     *tree
	zxid     int64
	unused   int64 // zxids taken since by requests that became no transaction
	lastID   int64
	sessions map[int64]*session
	lines    map[*line]struct{}
	claims   map[int64][]*line // the connections of each session, in order of the arrival of their handshakes
	watches  watches
	cut      cut
	losses   eventLosses
	trail    trail
	rules    []*rule // replaced, never changed
	logs     []*Log
	pace     pace
	ahead    time.Duration // of the leader's clock (see SetClock)
	reporter *time.Timer
	reaper   *time.Timer
}

// NewServer starts a server and closes it at the end of the test. If the start fails, so does the test. A failed test
// shows the latest requests in its log. In a bubble of testing/synctest the server uses the bubble's clock, and
// clients can reach it only through [Server.Dialer].
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
	if err := cfg.checkSASL(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, began: time.Now(), tree: newTree(), zxid: firstZxid, lastID: firstID,
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
		s.reporter = time.AfterFunc(s.cfg.byClock(s.cfg.touch), s.report)
	}
	return nil
}

// inBubble reports whether the clock is that of a synctest bubble, which begins in 2000.
// In a bubble, a goroutine that waits for a real connection would stop the time.
func inBubble() bool { return time.Now().Year() < 2020 }

// Addr returns the address of the first server, host:port. In a synctest bubble nothing listens there. The address is a
// name for [Server.Dialer], and its text says so in the error of a client that dials without.
func (s *Server) Addr() string { return s.Addrs()[0] }

// Addrs returns the addresses of all servers.
func (s *Server) Addrs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	addresses := make([]string, len(s.members))
	for i, m := range s.members {
		addresses[i] = m.address
	}
	return addresses
}

// Dialer returns a dialer that connects to the server without a network, inside or
// outside a synctest bubble. It accepts the addresses of [Server.Addrs], and takes any
// other address for the first server's.
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
	m.carry(far)
	return clientEnd{near}, nil
}

// clientEnd is the client's end of a connection.
type clientEnd struct{ net.Conn }

// WritesPromptly says that a short write does not wait for the server, which takes frames
// even while it is silent. The client then writes as over TCP.
func (clientEnd) WritesPromptly() {}

// stall makes a dialer wait while nothing gets through, as after a lost SYN, and reports whether the timeout is over;
// 0 is no limit. Called under the lock, which it releases while it waits.
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

// member returns the server with an address, or else the first server. Called under the
// lock.
func (s *Server) member(address string) *member {
	for _, m := range s.members {
		if m.address == address {
			return m
		}
	}
	return s.members[0]
}

// Close ends every connection, and waits for every goroutine of the server, including
// running rules. It is idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	s.shut()
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// shut closes all listeners, connections and timers. Called under the lock.
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

// hasQuorum reports whether a majority of the servers runs. Otherwise no server serves
// clients, and sessions do not age. Called under the lock.
func (s *Server) hasQuorum() bool { return !s.closed && 2*s.running() > len(s.members) }

// running returns the number of servers that run. Called under the lock.
func (s *Server) running() (n int) {
	for _, m := range s.members {
		if !m.stopped {
			n++
		}
	}
	return n
}

// nextZxid takes the zxid of a transaction. Called under the lock.
func (s *Server) nextZxid() { s.zxid, s.unused = s.zxid+s.unused+1, 0 }

// now returns the time by the leader's clock. Called under the lock.
func (s *Server) now() time.Time { return time.Now().Add(s.ahead) }

// change begins a transaction with the latest zxid. Called under the lock.
func (s *Server) change() *change {
	return &change{tree: s.tree, zxid: s.zxid, now: s.now().UnixMilli(), ttl: s.cfg.ttl, sasl: s.cfg.passwords != nil, tls: s.cfg.tls != nil}
}

// commit notifies the watchers of a transaction. Called under the lock.
func (s *Server) commit(c *change) {
	for _, e := range c.events {
		s.watches.tell(e)
	}
}

// reapRegularly calls Reap and restarts the reaper, the timer that calls it.
func (s *Server) reapRegularly() {
	s.Reap()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.reaper.Reset(s.cfg.reap)
	}
}

// Reap at once removes the containers that had children and have none left, and the
// znodes whose TTL has run out. The server does the same once per [WithReapInterval].
func (s *Server) Reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hasQuorum() {
		return
	}
	var spent []string
	for path, n := range s.tree.nodes {
		if len(n.children) == 0 && n.isSpent(s.now(), s.cfg.traits.reapUnused) {
			spent = append(spent, path)
		}
	}
	slices.Sort(spent)
	for _, path := range spent {
		s.nextZxid()
		c := s.change()
		c.remove(path)
		s.commit(c)
	}
}
