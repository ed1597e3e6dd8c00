package zkutil

import (
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// ensemble is the ZooKeeper of one test in a synctest bubble, and the clients' side of
// the connections to it. It has two servers, of which a client knows the first unless
// the test says otherwise: when that one is stopped, the time of its sessions goes on.
type ensemble struct {
	*zktest.Server
	t    *testing.T
	a, b string      // the addresses of the servers
	log  *zktest.Log // of all requests

	mu      sync.Mutex // protects what is below
	dials   []string
	ends    []*clientEnd
	onWrite func(frame []byte) error // of every frame that a client writes
}

// tick is the unit of the servers' clock, and as short as it may be.
const tick = time.Millisecond

func newEnsemble(t *testing.T, opts ...zktest.Option) *ensemble {
	t.Helper()
	opts = append([]zktest.Option{zktest.WithServers(2), zktest.WithTickTime(tick)}, opts...)
	e := &ensemble{Server: zktest.NewServer(t, opts...), t: t}
	e.a, e.b, e.log = e.Addrs()[0], e.Addrs()[1], e.Observe()
	t.Cleanup(func() {
		known := []zktest.Op{
			zktest.OpCreate, zktest.OpCreateContainer, zktest.OpDelete, zktest.OpSetData, zktest.OpGetData,
			zktest.OpGetChildren2, zktest.OpSync, zktest.OpMulti, zktest.OpAuth, zktest.OpSetWatches, zktest.OpClose,
			zktest.OpSetACL, // of tests
		}
		for _, r := range e.log.Requests() {
			require.Contains(t, known, r.Op, "the engine asks for nothing else")
		}
	})
	return e
}

// config is that of a client of some servers, of the first if none is named.
func (e *ensemble) config(timeout time.Duration, servers ...string) Config {
	if len(servers) == 0 {
		servers = []string{e.a}
	}
	return Config{
		Servers:          servers,
		SessionTimeout:   timeout,
		OperationTimeout: 10 * time.Second,
		Dialer:           e.dial,
		ACL:              zk.WorldACL(zk.PermAll),
		Retry:            Retry{}.WithDefaults(),
		Logger:           slog.New(slog.DiscardHandler),
	}
}

// Restart can't fail in a bubble, where nothing listens.
func (e *ensemble) Restart(servers ...string) {
	if err := e.Server.Restart(servers...); err != nil {
		e.t.Error(err)
	}
}

// hang makes a server leave handshakes without an answer.
func (e *ensemble) hang(server string) (restore func()) {
	return e.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpConnect && r.Server == server {
			return zktest.Fault{Lost: zktest.NoAnswer}
		}
		return zktest.Fault{}
	})
}

// onRequest says what goes wrong with requests, pings and handshakes apart. It asks
// about one at a time.
func (e *ensemble) onRequest(trouble func(r zktest.Request) zktest.Fault) (remove func()) {
	var mu sync.Mutex
	return e.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpPing || r.Op == zktest.OpConnect {
			return zktest.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		return trouble(r)
	})
}

// once makes trouble for the next request of an operation.
func (e *ensemble) once(op zktest.Op, trouble zktest.Fault) {
	done := false
	e.onRequest(func(r zktest.Request) zktest.Fault {
		if r.Op != op || done {
			return zktest.Fault{}
		}
		done = true
		return trouble
	})
}

// expiryOf is when a session will end unless it is heard of, without the rounding up
// to a tick: no later than it would be on a server whose clock has none.
func (e *ensemble) expiryOf(id int64) time.Time {
	session, alive := e.Session(id)
	require.True(e.t, alive)
	return session.Expiry.Add(-tick)
}

func (e *ensemble) alive(id int64) bool {
	_, alive := e.Session(id)
	return alive
}

// lastWrite is when the latest committed write reached the quorum: on a line of the
// bubble that is when it was sent.
func (e *ensemble) lastWrite() (last time.Time) {
	for _, r := range e.log.Requests(zktest.OpCreate, zktest.OpCreateContainer, zktest.OpDelete, zktest.OpSetData, zktest.OpMulti) {
		last = latest(last, r.Time)
	}
	return last
}

// dial is the zk.Dialer of the clients.
func (e *ensemble) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	e.mu.Lock()
	e.dials = append(e.dials, address)
	e.mu.Unlock()
	conn, err := e.Dialer()(network, address, timeout)
	if err != nil {
		return nil, err
	}
	end := &clientEnd{Conn: conn, e: e, server: address, closed: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ends = append(e.ends, end)
	return end, nil
}

// dialled are the servers that clients have tried, in that order.
func (e *ensemble) dialled() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.dials)
}

// latestEnd is the client's end of the latest connection.
func (e *ensemble) latestEnd() *clientEnd {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ends[len(e.ends)-1]
}

// open is how many connections have not been closed by their client.
func (e *ensemble) open() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, end := range e.ends {
		if !isClosed(end.closed) {
			n++
		}
	}
	return n
}

// clientEnd is what a client reads from and writes to.
type clientEnd struct {
	net.Conn
	e      *ensemble
	server string
	once   sync.Once
	closed chan struct{} // closed by Close
}

func (c *clientEnd) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *clientEnd) Write(frame []byte) (int, error) {
	c.e.mu.Lock()
	hook := c.e.onWrite
	c.e.mu.Unlock()
	if hook != nil {
		if err := hook(frame); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(frame)
}
