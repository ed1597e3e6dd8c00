package faultproxy

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy forwards connections made to Addr to one server.
type Proxy struct {
	upstream string
	listener net.Listener
	work     sync.WaitGroup // the accept loop and every goroutine of a link; joined by Close

	up, down gate
	delay    atomic.Int64
	refuse   atomic.Bool
	tally    tally
	hooks    rules // see every request, before the rules
	rules    rules

	mu     sync.Mutex
	closed bool           // guarded by mu
	made   int            // guarded by mu; connections so far
	links  map[*link]bool // guarded by mu; the live ones
}

// New is Start for a test. The proxy is closed at the test's end.
func New(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	p, err := Start(upstream)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// Start listens on a free port of the loopback interface for the server at upstream, which need not be up yet.
func Start(upstream string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{upstream: upstream, listener: listener, links: map[*link]bool{}}
	p.work.Go(p.accept) // ends when Close closes the listener
	return p, nil
}

// Addr returns the address for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts every connection, stops listening and returns after all goroutines of the proxy end. It may be called more
// than once, but not from a hook.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.Cut()
	p.work.Wait()
}

// Cut closes both ends of the live connections. New ones can be made at once.
func (p *Proxy) Cut() {
	for _, l := range p.live() {
		l.cut()
	}
}

// Refuse sets whether new connections are closed at once. Live ones are not affected.
func (p *Proxy) Refuse(on bool) { p.refuse.Store(on) }

// Hold silences the line in both directions, on live and new connections, and closes none. Data waits until Release and
// is then delivered in order, even if its sender closed the connection meanwhile. A connection that is made and
// abandoned during the hold never reaches the server.
func (p *Proxy) Hold() {
	p.up.close()
	p.down.close()
}

// HoldUp is Hold for what clients send.
func (p *Proxy) HoldUp() { p.up.close() }

// HoldDown is Hold for what the server sends.
func (p *Proxy) HoldDown() { p.down.close() }

// Release ends Hold, HoldUp and HoldDown.
func (p *Proxy) Release() {
	p.up.open()
	p.down.open()
}

// Delay makes each frame arrive d later, in each direction. It is a latency, not a limit on throughput, and applies to
// frames not yet forwarded.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Counts returns the traffic since the start or ResetCounts.
func (p *Proxy) Counts() Counts { return p.tally.snapshot() }

// ResetCounts starts counting afresh.
func (p *Proxy) ResetCounts() { p.tally.reset() }

// Record starts a new log of requests, or ends it.
func (p *Proxy) Record(on bool) { p.tally.setRecord(on) }

// Requests returns the log since Record(true): the clients' requests in order of arrival, pings and handshakes included.
func (p *Proxy) Requests() []Request { return p.tally.recorded() }

// Live returns the number of connections that clients have open.
func (p *Proxy) Live() int {
	open := 0
	for _, l := range p.live() {
		if !l.hungUp.Load() {
			open++
		}
	}
	return open
}

func (p *Proxy) live() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.tally.connection()
		if p.refuse.Load() {
			conn.Close()
			continue
		}
		if l, ok := p.admit(conn); ok {
			p.work.Go(l.run) // ends when the link is cut or either side hangs up
		}
	}
}

// admit makes the link and lists it, unless the proxy is closed, because Close must find every link.
func (p *Proxy) admit(client net.Conn) (*link, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		client.Close()
		return nil, false
	}
	p.made++
	l := newLink(p, p.made, client)
	p.links[l] = true
	return l, true
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
