package faultproxy

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// queueLength is how many frames a direction keeps while it is delayed or held; more stay with their sender.
	queueLength = 1024
	dialTimeout = 5 * time.Second
	// lastWords bounds how long the server may continue after the client hangs up.
	lastWords = time.Second
)

// link is one client's connection and the proxy's own to the server.
//
// Each direction has a reader that queues frames and a writer that forwards them. The writer sees the sender's hang-up
// after the frames before it. All four goroutines end when the link is cut.
type link struct {
	proxy  *Proxy
	number int
	client net.Conn
	done   chan struct{} // closed by cut
	once   sync.Once
	hungUp atomic.Bool // the client closed its end

	mu        sync.Mutex
	server    net.Conn    // guarded by mu; nil until dialled
	session   int64       // guarded by mu; 0 until the handshake is answered
	exchanges []*exchange // guarded by mu; requests forwarded and not answered, oldest first
}

// exchange is a pending request, with the rules that wait for its answer.
type exchange struct {
	request Request
	rules   []*Rule
}

func newLink(p *Proxy, number int, client net.Conn) *link {
	return &link{proxy: p, number: number, client: client, done: make(chan struct{})}
}

// cut closes both connections and so ends the link's goroutines.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.done)
		l.client.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.server != nil {
			l.server.Close()
		}
	})
}

// run carries the link until it is cut, and joins its goroutines.
func (l *link) run() {
	var work sync.WaitGroup
	defer func() {
		l.cut()
		work.Wait()
		l.abandon()
		l.proxy.forget(l)
	}()
	requests := make(chan frame, queueLength)
	work.Go(func() {
		l.read(l.client, requests)
		l.hungUp.Store(true)
		close(requests)
	})
	if !l.proxy.up.pass(l.done) || l.hungUp.Load() {
		return
	}
	server, ok := l.dial()
	if !ok {
		return
	}
	replies := make(chan frame, queueLength)
	work.Go(func() {
		l.read(server, replies)
		close(replies)
	})
	work.Go(func() {
		l.writeUp(server, requests)
		// The server answers the hang-up with its own, which ends the other direction.
		if tcp, ok := server.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		_ = server.SetReadDeadline(time.Now().Add(lastWords))
	})
	l.writeDown(replies)
}

// dial connects to the server; it fails when the link is cut meanwhile.
func (l *link) dial() (net.Conn, bool) {
	server, err := net.DialTimeout("tcp", l.proxy.upstream, dialTimeout)
	if err != nil {
		return nil, false
	}
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	select {
	case <-l.done: // cut may have run before the server was known
		server.Close()
		return nil, false
	default:
		return server, true
	}
}

// read queues frames until the sender hangs up or the link is cut.
func (l *link) read(from io.Reader, queue chan<- frame) {
	for {
		f, err := readFrame(from)
		if err != nil {
			return
		}
		select {
		case queue <- f:
		case <-l.done:
			return
		}
	}
}

// ready waits for the frame's time and for the line; it returns false when the link is cut first.
func (l *link) ready(f frame, line *gate) bool {
	if wait := time.Until(f.read.Add(time.Duration(l.proxy.delay.Load()))); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.done:
			return false
		}
	}
	return line.pass(l.done)
}

// abandon gives the requests that will never be answered back to their rules.
func (l *link) abandon() {
	l.mu.Lock()
	exchanges := l.exchanges
	l.exchanges = nil
	l.mu.Unlock()
	for _, e := range exchanges {
		for _, rule := range e.rules {
			rule.giveBack()
		}
	}
}

func (l *link) expect(e *exchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exchanges = append(l.exchanges, e)
}

// answered returns the oldest request with this number. A server answers in order, but pings and credentials may overtake.
func (l *link) answered(xid int32) *exchange {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.exchanges {
		if e.request.Xid == xid {
			l.exchanges = append(l.exchanges[:i:i], l.exchanges[i+1:]...)
			return e
		}
	}
	return nil
}

func (l *link) setSession(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = id
}

func (l *link) sessionID() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}
