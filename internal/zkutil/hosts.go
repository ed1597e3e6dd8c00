package zkutil

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// hosts is the zk.HostProvider of a session. It differs from zk.Conn's own: names
// are resolved anew in each round, so that a server that moved is found again; the
// first attempt after a loss is made at once, even with a single address; a round
// always ends, so that zk.Conn pauses; and a server that cuts each connection right
// after the handshake does not make it spin.
type hosts struct {
	ctx      context.Context // ends with the session
	inner    zk.HostProvider // the user's, or nil
	resolve  bool            // false with a user's dialer, who resolves
	patience func() time.Duration
	haste    func() time.Duration // the pause that is wanted instead of zk.Conn's; 0: none

	mu       sync.Mutex // protects what is below
	names    []string
	resolved map[string][]string // the addresses of a name, as last known
	round    []host
	next     int
	since    time.Time      // when a server last answered
	rush     bool           // and that was soon after the time before
	last     string         // the address handed out last
	known    int            // how many addresses there were at the last attempt
	tries    int            // since the last success or pause
	refusals map[string]int // how often in a row an address has refused us for good
}

// host is an address and the name that it was resolved from.
type host struct{ address, name string }

// Init is called by zk.Connect, with ports filled in.
func (h *hosts) Init(servers []string) error {
	if h.inner != nil {
		return h.inner.Init(servers)
	}
	for _, server := range servers {
		if name, _, err := net.SplitHostPort(server); err != nil || name == "" {
			return fmt.Errorf("server %q is not host:port", server)
		}
	}
	h.names, h.resolved = servers, map[string][]string{}
	return nil
}

// Len is the number of servers as configured.
func (h *hosts) Len() int {
	if h.inner != nil {
		return h.inner.Len()
	}
	return len(h.names)
}

// addresses is how many there are to try.
func (h *hosts) addresses() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known
}

// Next returns the next server; retryStart asks zk.Conn for a pause of a second.
func (h *hosts) Next() (server string, retryStart bool) {
	h.pause()
	server, retryStart = h.choose()
	if !retryStart || h.haste == nil {
		return server, retryStart
	}
	rest := h.haste()
	h.rest(rest)
	return server, rest == 0
}

// choose is Next without the waiting.
func (h *hosts) choose() (server string, retryStart bool) {
	n := 1
	if h.inner != nil {
		server, retryStart = h.inner.Next()
		n = max(h.inner.Len(), n)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.inner == nil {
		n = len(h.round)
		if h.next == n {
			h.round, h.next = h.lookup(), 0
			n = len(h.round)
			if n > 1 && h.round[0].address == h.last { // it has just failed
				h.round[0], h.round[n-1] = h.round[n-1], h.round[0]
			}
		}
		server = h.round[h.next].address
		h.next++
		h.last = server
	}
	h.known = n
	if h.tries >= n {
		retryStart = true
	}
	if retryStart {
		h.tries = 0
	}
	h.tries++
	return server, retryStart
}

// reached is called when a server has answered, be it that the session has expired:
// the next attempt needs no pause.
func (h *hosts) reached() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries = 0
	h.rush = time.Since(h.since) < shortestConnection
	h.since = time.Now()
}

// refusalsForGood is how often in a row an address has to refuse us for good: there may be
// several servers behind it, or one that is just being mended.
const refusalsForGood = 2

// failed notes how an attempt at an address has ended: refused for good, or not. It
// reports whether all servers have done so again and again. A host provider of the user's
// may know others.
func (h *hosts) failed(address string, forGood bool) (all bool) {
	if h.inner != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !forGood {
		delete(h.refusals, address)
		return false
	}
	if h.refusals == nil {
		h.refusals = map[string]int{}
	}
	h.refusals[address]++
	maps.DeleteFunc(h.refusals, func(address string, _ int) bool {
		return !slices.ContainsFunc(h.round, func(one host) bool { return one.address == address })
	})
	return !slices.ContainsFunc(h.round, func(one host) bool { return h.refusals[one.address] < refusalsForGood })
}

// shortestConnection is how far apart connections are, when they come in a row.
const shortestConnection = 50 * time.Millisecond

// pause slows down after two connections in a rush.
func (h *hosts) pause() {
	h.mu.Lock()
	rest := shortestConnection - time.Since(h.since)
	if !h.rush {
		rest = 0
	}
	h.mu.Unlock()
	h.rest(rest)
}

// rest lets time pass while the session stands.
func (h *hosts) rest(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.ctx.Done():
	}
}

// Connected is called after each handshake that zk.Conn is content with.
func (h *hosts) Connected() {
	h.reached()
	if h.inner != nil {
		h.inner.Connected()
	}
}

// lookup resolves every name, within one patience. One that can't be resolved keeps
// the addresses it had, or stays a name, so that the dial says why.
func (h *hosts) lookup() []host {
	ctx, cancel := context.WithTimeout(h.ctx, h.patience())
	defer cancel()
	var found []host
	for _, server := range h.names {
		name, port, _ := net.SplitHostPort(server)
		if h.resolve && net.ParseIP(name) == nil {
			if resolved, err := net.DefaultResolver.LookupHost(ctx, name); err == nil {
				h.resolved[name] = resolved
			}
		}
		addresses := h.resolved[name]
		if len(addresses) == 0 {
			addresses = []string{name}
		}
		for _, address := range addresses {
			found = append(found, host{net.JoinHostPort(address, port), name})
		}
	}
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return found
}

// nameOf returns the configured name behind an address, for TLS.
func (h *hosts) nameOf(address string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, candidate := range h.round {
		if candidate.address == address {
			return candidate.name
		}
	}
	name, _, _ := net.SplitHostPort(address)
	return name
}
