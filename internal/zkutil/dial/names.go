package dial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// host is a server to try, with an address and the name of that address. Both stay together from the choice of the server to
// TLS, refusals and patience. A name may have several addresses, and servers may share an address behind a proxy that routes
// by the name in TLS, or use the name for a login.
type host struct {
	server  string // as configured, host:port
	address string // to dial; empty if err is not nil
	err     error  // why the server has no address

	isAdded, isLastResort bool // see server
}

// String returns the host as zk.Conn, the log and the user see it: "name/address:port", as in ZooKeeper's own client, or the
// server as configured if the dialer gets the latter.
func (h host) String() string {
	if h.address == h.server || h.address == "" {
		return h.server
	}
	return h.name() + "/" + h.address
}

// name returns the configured name without the port, for TLS.
func (h host) name() string {
	if name, _, err := net.SplitHostPort(h.server); err == nil {
		return name
	}
	return h.server
}

// names resolves the names of the servers in the background, because a name server may be silent. Each lookup has a goroutine,
// which ends with the session's context if the resolver obeys the context. At most one lookup runs for each name. The previous
// addresses of a name stay known until a lookup returns new addresses.
type names struct {
	ctx        context.Context // ends with the session
	lookup     func(ctx context.Context, name string) ([]string, error)
	run        func(lookup func()) bool // in a goroutine joined by the owner's Close
	isByName   bool                     // TLS or a login distinguishes servers with the same address by name
	isVerbatim bool                     // the user's dialer gets the names as they are

	mu          sync.Mutex // protects the fields below, and the names
	servers     []server
	given       []server // of init
	left        []server // former members of the ensemble
	isFollowing bool
	changes     zkutil.Changes
}

// server is one server as configured.
type server struct {
	text string // host:port
	port string
	name *name // several servers may share it

	isAdded      bool // not given to the user's Connect
	isSuggested  bool // see Dialer.Suggest
	isLastResort bool // see Dialer.Follow
}

// name is a host as configured, with the results of lookups.
type name struct {
	text      string
	isFixed   bool      // an address, or for the user's dialer: never looked up
	addresses []string  // of the latest successful lookup
	isCurrent bool      // addresses are of the latest lookup that was begun
	isRunning bool      // a lookup is under way
	begunAt   time.Time // when the latest lookup began
	err       error     // of the latest lookup, if it failed
}

const (
	// lookupGrace is how long a round waits for a lookup while other addresses are left to try. A healthy name server answers
	// within lookupGrace, so that no attempt is made at an address that a server no longer has.
	lookupGrace = 50 * time.Millisecond
	// lookupLimit bounds a lookup. A resolver takes less to ask each of three name servers twice.
	lookupLimit = 35 * time.Second
)

// init sets the servers, each host:port.
func (n *names) init(servers []string) error {
	byText := map[string]*name{}
	for _, text := range servers {
		host, port, err := net.SplitHostPort(text)
		if err != nil || host == "" {
			return fmt.Errorf("server %q is not host:port", text)
		}
		n.servers = append(n.servers, server{text: text, port: port, name: n.nameOf(byText, host)})
	}
	n.given = n.servers
	return nil
}

// nameOf returns the name of a host, which is made unless known has one.
func (n *names) nameOf(known map[string]*name, host string) *name {
	if known[host] == nil {
		_, notAddress := netip.ParseAddr(host)
		made := &name{text: host, isFixed: n.isVerbatim || notAddress == nil}
		if made.isFixed {
			made.addresses, made.isCurrent = []string{host}, true
		}
		known[host] = made
	}
	return known[host]
}

// count returns the number of servers.
func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.servers)
}

// resolve begins a lookup of each name without a running lookup, and waits: for patience at most until an address is known,
// and within lookupGrace for names with addresses. If areAllTried, no address is left to try meanwhile, so that resolve waits
// within lookupGrace for the other names as well. The end of the session ends the wait.
func (n *names) resolve(patience time.Duration, areAllTried bool) {
	n.begin()
	grace, limit := time.NewTimer(lookupGrace), time.NewTimer(patience)
	defer grace.Stop()
	defer limit.Stop()
	for {
		isAwaited, changed := n.isAwaited(areAllTried)
		if !isAwaited {
			return
		}
		select {
		case <-changed:
		case <-grace.C:
		case <-limit.C:
			return
		case <-n.ctx.Done():
			return
		}
	}
}

// begin begins a lookup of each name without a running lookup.
func (n *names) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.servers {
		x := s.name
		switch {
		case x.isFixed || x.isRunning:
		case n.run(func() { n.lookUp(x) }):
			x.isRunning, x.isCurrent, x.begunAt = true, false, time.Now()
		default:
			x.err = zkutil.ErrClosed
		}
	}
}

// isAwaited reports whether resolve has to wait, and returns a channel that the end of the next lookup closes.
func (n *names) isAwaited(areAllTried bool) (isAwaited bool, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	isKnown, isRunning, isInGrace := false, false, false
	for _, s := range n.servers {
		x := s.name
		hasAddress := len(x.addresses) > 0
		isKnown, isRunning = isKnown || hasAddress, isRunning || x.isRunning
		isInGrace = isInGrace || x.isRunning && (hasAddress || areAllTried) && time.Since(x.begunAt) < lookupGrace
	}
	return isInGrace || !isKnown && isRunning, n.changes.ChangedLocked()
}

// lookUp looks up one name.
func (n *names) lookUp(x *name) {
	ctx, cancel := context.WithTimeout(n.ctx, lookupLimit)
	defer cancel()
	addresses, err := n.lookup(ctx, x.text)
	if err == nil && len(addresses) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: x.text, IsNotFound: true}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	x.isRunning, x.err = false, err
	if err == nil {
		x.addresses, x.isCurrent = slices.Clone(addresses), true
	}
	n.changes.AnnounceLocked()
}

// freshness orders hosts: first addresses from the latest lookup, then addresses from an earlier lookup, then hosts without an
// address.
type freshness int

const (
	isCurrent freshness = iota
	isEarlier
	isUnknown
)

// hosts returns the hosts to try, each once, the freshest first, and otherwise in random order. A name without an address whose
// lookup is under way is left out if any other host is known; isComplete is false then.
func (n *names) hosts() (hosts []host, isComplete bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	type candidate struct {
		host
		freshness
	}
	var silent []host
	var all []*candidate
	byKey := map[string]*candidate{}
	for _, s := range n.servers {
		switch {
		case len(s.name.addresses) == 0 && s.name.isRunning:
			silent = append(silent, host{server: s.text, err: noAnswer(s.name), isAdded: s.isAdded, isLastResort: s.isLastResort})
		case len(s.name.addresses) == 0:
			all = append(all, &candidate{host{server: s.text, err: s.name.err, isAdded: s.isAdded, isLastResort: s.isLastResort}, isUnknown})
		}
		for _, address := range s.name.addresses {
			next := &candidate{host{server: s.text, address: net.JoinHostPort(address, s.port), isAdded: s.isAdded, isLastResort: s.isLastResort}, isEarlier}
			if s.name.isCurrent {
				next.freshness = isCurrent
			}
			key := next.address // two names with the same address are the same server, unless TLS or a login distinguishes the names
			if n.isByName {
				key = next.String()
			}
			if known := byKey[key]; known != nil { // the first name stands for the server in every round
				known.freshness = min(known.freshness, next.freshness)
				continue
			}
			all, byKey[key] = append(all, next), next
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(a, b *candidate) int { return int(a.freshness - b.freshness) })
	for _, c := range all {
		hosts = append(hosts, c.host)
	}
	if len(hosts) == 0 {
		return silent, true
	}
	return hosts, len(silent) == 0
}

// noAnswer returns the error of a lookup that is under way.
func noAnswer(x *name) error {
	return &net.DNSError{Err: "no answer yet from the name server", Name: x.text, IsTimeout: true}
}

// pending returns the error of a running lookup, nil if an address is known.
func (n *names) pending() (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.servers {
		if len(s.name.addresses) > 0 {
			return nil
		}
		if s.name.isRunning {
			err = noAnswer(s.name)
		}
	}
	return err
}
