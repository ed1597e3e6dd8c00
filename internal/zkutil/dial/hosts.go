package dial

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// hosts is the zk.HostProvider of a session. Unlike the provider of zk.Conn, hosts
//
//   - resolves names anew in each round, to find a server that has moved: see names;
//   - begins a round after each loss of a connection, and when all servers have been tried;
//   - makes the first attempt after a loss at once, even with a single address;
//   - ends every round, even if the user's host provider never does, so that zk.Conn pauses;
//   - pauses while connections follow each other quickly, because a server that cuts each connection
//     right after the handshake would make zk.Conn spin.
type hosts struct {
	ctx        context.Context // ends with the session
	initCtx    context.Context // bounds Init
	inner      *userHosts      // the user's, or nil
	names      *names          // of the servers, where the user has no host provider
	patience   func() time.Duration
	roundPause func() time.Duration // replaces zk.Conn's pause, unless 0

	addressCount atomic.Int64 // at the latest attempt; read under the owner's lock

	mu         sync.Mutex      // protects the fields below
	chosen     host            // by the latest Next
	tried      map[string]bool // in the current round, by host; nil: the next attempt begins a round
	attempts   int             // since the last success or pause
	answeredAt time.Time       // when a server last answered
	isFlapping bool            // two servers answered within flappingInterval
	refusals   map[string]int  // permanent refusals in a row, by host
}

// Init sets the servers. zk.Connect calls Init, with ports filled in.
func (h *hosts) Init(servers []string) error {
	if h.inner != nil {
		return h.inner.initWithin(h.initCtx, servers)
	}
	return h.names.init(servers)
}

// Len returns the number of configured servers.
func (h *hosts) Len() int {
	if h.inner != nil {
		return h.inner.Len()
	}
	return h.names.count()
}

// countAddresses returns the number of addresses to try, 0 before the first attempt.
func (h *hosts) countAddresses() int { return int(h.addressCount.Load()) }

// Next returns the next server. retryStart asks zk.Conn for a pause of a second. Next blocks for
// all other pauses, and until an address is known.
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
	var next host
	n := 1
	if h.inner != nil {
		next, retryStart = h.inner.choose()
		n = max(h.inner.Len(), n)
	} else {
		next, n = h.nextOfRound()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.chosen = next
	h.addressCount.Store(int64(n))
	if h.attempts >= n {
		retryStart = true
	}
	if retryStart {
		h.attempts = 0
	}
	h.attempts++
	return next.String(), retryStart
}

// nextOfRound returns the next host and the number of hosts. If every host was tried, a new round begins.
func (h *hosts) nextOfRound() (next host, n int) {
	next, n, isUntried := h.takeUntried()
	if isUntried {
		return next, n
	}
	h.names.resolve(h.patience(), n > 0) // without h.mu: others ask meanwhile
	h.beginRound()
	next, n, _ = h.takeUntried()
	return next, n
}

// takeUntried returns a host that was not tried in the current round, and the number of hosts. The host that has just failed
// comes last.
func (h *hosts) takeUntried() (next host, n int, isUntried bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tried == nil {
		return host{}, 0, false
	}
	all, _ := h.names.hosts()
	n = len(all)
	untried := slices.DeleteFunc(all, func(candidate host) bool { return h.tried[candidate.String()] })
	if len(untried) == 0 {
		return host{}, n, false
	}
	if members := slices.DeleteFunc(slices.Clone(untried), func(candidate host) bool { return candidate.isLastResort }); len(members) > 0 {
		untried = members
	}
	other := slices.IndexFunc(untried, func(candidate host) bool { return candidate.String() != h.chosen.String() })
	next = untried[max(other, 0)]
	h.tried[next.String()] = true
	return next, n, true
}

func (h *hosts) beginRound() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = map[string]bool{}
}

// find returns the host for a server, which Next has returned.
func (h *hosts) find(server string) host {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.chosen.String() == server {
		return h.chosen
	}
	return host{server: server, address: server}
}

// noteAnswer records that a server has answered the handshake, even if the answer says that the session
// has expired. The next attempt needs no pause.
func (h *hosts) noteAnswer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts, h.tried = 0, nil
	h.isFlapping = time.Since(h.answeredAt) < flappingInterval
	h.answeredAt = time.Now()
}

// permanentRefusals is the number of permanent refusals in a row after which a host counts as
// hopeless. Several servers may share a host, and a server may be under repair.
const permanentRefusals = 2

// noteFailure records that an attempt at a server has failed, and reports whether all servers are
// hopeless. A user's host provider may know further servers, and a name without an address may get an
// address; neither is ever hopeless.
func (h *hosts) noteFailure(server string, isPermanent bool) (isHopeless bool) {
	if h.inner != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !isPermanent {
		delete(h.refusals, server)
		return false
	}
	if h.refusals == nil {
		h.refusals = map[string]int{}
	}
	h.refusals[server]++
	all, isComplete := h.names.hosts()
	maps.DeleteFunc(h.refusals, func(server string, _ int) bool {
		return !slices.ContainsFunc(all, func(known host) bool { return known.String() == server })
	})
	return isComplete && !slices.ContainsFunc(all, func(known host) bool { return h.refusals[known.String()] < permanentRefusals })
}

// flappingInterval is the shortest time between two connections in a row.
const flappingInterval = 50 * time.Millisecond

// pauseWhileFlapping blocks until flappingInterval after the latest answer, if the latest two connections have
// followed each other faster.
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

// Connected records a handshake that gave zk.Conn a session. zk.Conn calls Connected.
func (h *hosts) Connected() {
	h.noteAnswer()
	if h.inner != nil {
		h.inner.Connected()
	}
}
