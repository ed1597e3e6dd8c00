package wire

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// hosts is the zk.HostProvider of a session. It differs from zk.Conn's own in this:
//
//   - It resolves names anew in each round, so that a server that moved is found again.
//   - It makes the first attempt after a loss at once, even with a single address.
//   - It ends every round, also for a user's host provider that does not, so that zk.Conn pauses.
//   - It pauses while connections follow each other, because a server that cuts each connection
//     right after the handshake would make zk.Conn spin.
type hosts struct {
	ctx         context.Context // ends with the session
	inner       zk.HostProvider // the user's, or nil
	isResolving bool            // false with a user's dialer, which resolves the names itself
	patience    func() time.Duration
	roundPause  func() time.Duration // the pause that replaces zk.Conn's; 0 stands for zk.Conn's

	addressCount atomic.Int64 // at the latest attempt; read under the owner's lock

	mu          sync.Mutex // protects what is below
	names       []string
	resolved    map[string][]string // the latest addresses of a name that could be resolved
	round       []host
	nextIndex   int            // in round
	lastAddress string         // of the latest attempt
	attempts    int            // since the last success or pause
	answeredAt  time.Time      // when a server last answered
	isFlapping  bool           // two servers answered within flappingInterval
	refusals    map[string]int // permanent refusals in a row, by address
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

// countAddresses returns how many addresses there are to try, 0 before the first attempt.
func (h *hosts) countAddresses() int { return int(h.addressCount.Load()) }

// Next returns the next server. retryStart asks zk.Conn for a pause of a second. Next blocks for
// the pauses that zk.Conn does not make.
func (h *hosts) Next() (server string, retryStart bool) {
	h.pauseWhileFlapping()
	server, retryStart = h.chooseServer()
	if !retryStart || h.roundPause == nil {
		return server, retryStart
	}
	pause := h.roundPause()
	h.wait(pause)
	return server, pause == 0
}

// chooseServer is Next without the pauses.
func (h *hosts) chooseServer() (server string, retryStart bool) {
	n := 1
	if h.inner != nil {
		server, retryStart = h.inner.Next()
		n = max(h.inner.Len(), n)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.inner == nil {
		server = h.nextOfRoundLocked()
		n = len(h.round)
	}
	h.addressCount.Store(int64(n))
	if h.attempts >= n {
		retryStart = true
	}
	if retryStart {
		h.attempts = 0
	}
	h.attempts++
	return server, retryStart
}

// nextOfRoundLocked returns the next address, after a new round has begun if necessary.
func (h *hosts) nextOfRoundLocked() string {
	if h.nextIndex == len(h.round) {
		h.round, h.nextIndex = h.newRoundLocked(), 0
		last := len(h.round) - 1
		if last > 0 && h.round[0].address == h.lastAddress { // that one has just failed
			h.round[0], h.round[last] = h.round[last], h.round[0]
		}
	}
	h.lastAddress = h.round[h.nextIndex].address
	h.nextIndex++
	return h.lastAddress
}

// noteAnswer is called when a server has answered the handshake, even if it reports that the session
// has expired. The next attempt needs no pause.
func (h *hosts) noteAnswer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts = 0
	h.isFlapping = time.Since(h.answeredAt) < flappingInterval
	h.answeredAt = time.Now()
}

// permanentRefusals is how many permanent refusals in a row an address needs until it counts as
// hopeless. There may be several servers behind an address, or a server that is being repaired.
const permanentRefusals = 2

// noteFailure notes that an attempt at an address has failed. It reports whether all addresses are
// hopeless. With a user's host provider they never are, because it may know further servers.
func (h *hosts) noteFailure(address string, isPermanent bool) (isHopeless bool) {
	if h.inner != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !isPermanent {
		delete(h.refusals, address)
		return false
	}
	if h.refusals == nil {
		h.refusals = map[string]int{}
	}
	h.refusals[address]++
	maps.DeleteFunc(h.refusals, func(address string, _ int) bool {
		return !slices.ContainsFunc(h.round, func(known host) bool { return known.address == address })
	})
	return !slices.ContainsFunc(h.round, func(known host) bool { return h.refusals[known.address] < permanentRefusals })
}

// flappingInterval is the shortest time between two connections that follow each other.
const flappingInterval = 50 * time.Millisecond

// pauseWhileFlapping blocks until flappingInterval after the latest answer, if two connections have
// followed each other faster than that.
func (h *hosts) pauseWhileFlapping() {
	h.mu.Lock()
	pause := flappingInterval - time.Since(h.answeredAt)
	if !h.isFlapping {
		pause = 0
	}
	h.mu.Unlock()
	h.wait(pause)
}

// wait blocks for d, or until the session ends.
func (h *hosts) wait(d time.Duration) {
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

// Connected is called by zk.Conn after each handshake that gave it a session.
func (h *hosts) Connected() {
	h.noteAnswer()
	if h.inner != nil {
		h.inner.Connected()
	}
}

// newRoundLocked resolves every name, within one patience. A name that cannot be resolved keeps the
// addresses it had. If it had none, it stays a name, so that the dial returns the reason.
func (h *hosts) newRoundLocked() []host {
	ctx, cancel := context.WithTimeout(h.ctx, h.patience())
	defer cancel()
	var round []host
	for _, server := range h.names {
		name, port, _ := net.SplitHostPort(server)
		if h.isResolving && net.ParseIP(name) == nil {
			if resolved, err := net.DefaultResolver.LookupHost(ctx, name); err == nil {
				h.resolved[name] = resolved
			}
		}
		addresses := h.resolved[name]
		if len(addresses) == 0 {
			addresses = []string{name}
		}
		for _, address := range addresses {
			round = append(round, host{net.JoinHostPort(address, port), name})
		}
	}
	rand.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
	return round
}

// nameOf returns the configured name behind an address, for TLS.
func (h *hosts) nameOf(address string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, known := range h.round {
		if known.address == address {
			return known.name
		}
	}
	name, _, _ := net.SplitHostPort(address)
	return name
}
