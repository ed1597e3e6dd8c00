package dial

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// hosts is the zk.HostProvider of a session. Unlike the provider of zk.Conn, hosts
//
//   - resolves names anew in each round, to find a server that moved (see names);
//   - begins a round after each loss of a connection, and when all servers were tried;
//   - makes the first attempt after a loss at once, even with a single address;
//   - pauses while connections end right after the handshake, for longer and longer (see flapping).
type hosts struct {
	ctx        context.Context // ends with the session
	names      *names          // of the servers
	patience   func() time.Duration
	roundPause func() time.Duration // replaces zk.Conn's pause, unless 0
	isInUse    func() bool          // a hold, a wait or a request needs the connection; nil: never

	addressCount atomic.Int64 // at the latest attempt; read under the owner's lock

	mu       sync.Mutex      // protects the fields below
	chosen   host            // by the latest Next
	tried    map[string]bool // in the current round, by host; nil if the next attempt begins a round
	attempts int             // since the last success or pause
	flapping flapping
	refusals map[string]refusals // by host
	good     map[string]bool     // hosts that answered the latest attempt, and did not fall silent since
}

// Init sets the servers. zk.Connect calls Init, with ports filled in.
func (h *hosts) Init(servers []string) error { return h.names.init(servers) }

// Len returns the number of configured servers.
func (h *hosts) Len() int { return h.names.count() }

// countAddresses returns the number of addresses to try, 0 before the first attempt.
func (h *hosts) countAddresses() int { return int(h.addressCount.Load()) }

// Next returns the next server. retryStart asks zk.Conn for a pause of a second. Next blocks for
// all other pauses, and until an address is known.
func (h *hosts) Next() (server string, retryStart bool) {
	h.wait(h.flappingPause())
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
	next, n := h.nextOfRound()
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

// takeUntried returns a host that was not tried in the current round, and the number of hosts. The order is that of rankLocked.
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
	next = slices.MinFunc(untried, func(a, b host) int { return h.rankLocked(a) - h.rankLocked(b) })
	h.tried[next.String()] = true
	return next, n, true
}

// rankLocked orders the untried hosts. The host that was tried last follows the others, but precedes hosts that only the
// ensemble's configuration names and that never answered. Their addresses may be unreachable from here, and each attempt costs
// a hold a part of its trust.
func (h *hosts) rankLocked(candidate host) int {
	isRetried, isGood := candidate.String() == h.chosen.String(), h.good[candidate.String()]
	switch {
	case !isRetried && !candidate.isLastResort && (!candidate.isAdded || isGood):
		return 0
	case !isRetried && isGood:
		return 1
	case isGood:
		return 2
	case !isRetried && !candidate.isLastResort:
		return 3
	case !isRetried:
		return 4
	default:
		return 5
	}
}

func (h *hosts) beginRound() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = map[string]bool{}
}

// find returns the host for a string returned by Next.
func (h *hosts) find(server string) host {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.chosen.String() == server {
		return h.chosen
	}
	return host{server: server, address: server}
}

// noteGood records that a server answered the handshake, with or without a session.
func (h *hosts) noteGood(server string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropUnknownLocked()
	if h.good == nil {
		h.good = map[string]bool{}
	}
	h.good[server] = true
}

// noteSilence records that a server did not answer.
func (h *hosts) noteSilence(server string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.good, server)
}

// dropUnknownLocked forgets what is known of hosts that are not tried any more.
func (h *hosts) dropUnknownLocked() {
	all, _ := h.names.hosts()
	isUnknown := func(server string) bool {
		return !slices.ContainsFunc(all, func(known host) bool { return known.String() == server })
	}
	maps.DeleteFunc(h.refusals, func(server string, _ refusals) bool { return isUnknown(server) })
	maps.DeleteFunc(h.good, func(server string, _ bool) bool { return isUnknown(server) })
}

// noteAnswer records that a server answered the handshake, even if the answer says that the session expired. The next
// attempt needs no pause for its round.
func (h *hosts) noteAnswer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts, h.tried = 0, nil
	h.flapping.answeredAt, h.flapping.isUseful = time.Now(), false
}

// noteCommit records that the connection served a write.
func (h *hosts) noteCommit() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.flapping.isUseful = true
}

// refusals are the refusals of a host, in a row.
type refusals struct{ likely, certain int } // likely includes certain

// enoughRefusals is the number of refusals in a row after which a host counts as refusing. Several servers may share a host, and a
// server may be under repair.
const enoughRefusals = 2

// noteFailure records a failed attempt at a server, and returns how all servers refuse the client. A name without an
// address may get an address, and does not count as a refusal.
func (h *hosts) noteFailure(server string, refusal Refusal) Refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.good, server)
	if refusal == NoRefusal {
		delete(h.refusals, server)
		return NoRefusal
	}
	if h.refusals == nil {
		h.refusals = map[string]refusals{}
	}
	latest := h.refusals[server]
	latest.likely++
	if refusal == CertainRefusal {
		latest.certain++
	}
	h.refusals[server] = latest
	h.dropUnknownLocked()
	all, isComplete := h.names.hosts()
	fewest := latest
	for _, known := range all {
		r := h.refusals[known.String()]
		fewest.likely, fewest.certain = min(fewest.likely, r.likely), min(fewest.certain, r.certain)
	}
	switch {
	case !isComplete || fewest.likely < enoughRefusals:
		return NoRefusal
	case fewest.certain < enoughRefusals:
		return LikelyRefusal
	default:
		return CertainRefusal
	}
}

// flapping counts the connections in a row that ended soon after the handshake, and served no write. A proxy or a server that cuts them would make zk.Conn
// connect as fast as it can, for as long as that lasts. The first such connection is replaced at once, as any other. The pauses before
// the following attempts double.
type flapping struct {
	answeredAt time.Time // when a server last answered; zero if not since the latest attempt
	isUseful   bool      // the connection served a write since
	count      int       // connections that lived for less than shortLife, and were not useful
}

const (
	shortLife            = time.Second
	shortestFlapping     = 50 * time.Millisecond
	longestFlappingPause = 10 * time.Second
)

// flappingPause returns the pause before the next attempt: at most the patience with one server, and while the session is in
// use a fraction of it, as between two rounds. Clients that were disconnected together do not reconnect together, because the
// pause is shorter by up to half at random.
func (h *hosts) flappingPause() time.Duration {
	limit := min(h.patience(), longestFlappingPause) // without h.mu, because of the order of locks
	if h.isInUse != nil && h.isInUse() {
		limit /= HurryDivisor
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := &h.flapping
	switch {
	case f.answeredAt.IsZero(): // an attempt failed since
		return 0
	case time.Since(f.answeredAt) < shortLife && !f.isUseful:
		f.count++
	default:
		f.count = 0
	}
	f.answeredAt = time.Time{}
	if f.count < 2 {
		return 0
	}
	pause := min(shortestFlapping<<min(f.count-2, 16), limit)
	return pause/2 + rand.N(pause/2+1) //nolint:gosec // no secret
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
func (h *hosts) Connected() { h.noteAnswer() }
