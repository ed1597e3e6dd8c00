package runner

import (
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
)

const (
	crowdSessions = 8
	crowd         = 8 // processes
	buyers        = 1500
	// waitersEach bounds the waiters per session in cases in which each has a znode. This library has at most 500
	// znodes of a session in one directory at a time, and its other callers wait inside their process.
	waitersEach = 450
)

var (
	locks   = []string{peer.Ours, peer.ZKLock, peer.Curator, peer.Etcd, peer.Redsync}
	limits  = []string{peer.Pipelined, peer.Raw}
	queues  = []string{peer.Ours, peer.ZKLock, peer.Curator, peer.Etcd, peer.Pipelined, peer.Raw}
	onZK    = []string{peer.Ours, peer.ZKLock, peer.Curator}
	baskets = []string{peer.Ours, peer.OneByOne, peer.ZKLock, peer.Curator}
	latches = []string{peer.Ours, peer.Curator, peer.Etcd, peer.Raw}
)

// Cases returns all cases. In the short form loads are smaller and the longest cases are left out; the figures are of the same
// kind.
func Cases(short bool) []Case {
	size := func(full, small int) int {
		if short {
			return small
		}
		return full
	}
	cases := slices.Concat(
		pairCases(size(2000, 500)),
		contendedCases(size(2000, 500)),
		drainCases(),
		[]Case{latchCase(size(200, 25))},
		seedCases(),
		cohortCases(size(2000, 500)),
		[]Case{distinctCase(size(6400, 1600))},
		basketCases(size(2000, 500)),
		waiterCases(size(10_000, 2000)),
		// Semaphores and read-write locks have their place here: their contenders are peers of their own, under loopKind.
	)
	if short {
		cases = slices.DeleteFunc(cases, func(c Case) bool { return c.Long })
	}
	return cases
}

func pairCases(pairs int) []Case {
	all := slices.Concat(locks, []string{peer.Unchecked, peer.Listed, peer.Raw})
	one := Case{Peers: all, Processes: 1, Sessions: 1, Load: load.Load{Locks: 1, Contenders: 1, Pairs: pairs}, kind: loopKind{}}
	plain, synced := one, one
	plain.Name, plain.Title = "pair", "Lock and unlock, nobody else there"
	plain.Cost = "round trips: a create, a list, a delete; what the client adds to them"
	synced.Name, synced.Title, synced.Fsync = "pair-fsync", "Lock and unlock, nobody else there, with fsync", true
	synced.Cost = "the two commits to the disk"
	return []Case{plain, synced}
}

func contendedCases(pairs int) []Case {
	var cases []Case
	for _, n := range []int{2, 8, 64, 256, buyers} {
		for _, spread := range []struct {
			name                string
			processes, sessions int
			words               string
		}{
			{"1s", 1, 1, "on %[2]d session"},
			{"8s", 1, crowdSessions, "on %[2]d sessions of one process"},
			{"8p", crowd, crowdSessions, "on %[2]d sessions in %[2]d processes"},
		} {
			peers := slices.Concat(locks, limits)
			if n > 64 {
				peers = queues // with that many, redsync's pauses alone are measured
			}
			cases = append(cases, Case{
				Name:  fmt.Sprintf("contended-%d-%s", n, spread.name),
				Title: fmt.Sprintf("%[1]d contenders "+spread.words+" take turns", n, min(n, spread.sessions)),
				Cost:  contendedCost(n, spread.sessions), Peers: peers, Processes: spread.processes, Sessions: spread.sessions,
				Load: load.Load{Locks: 1, Contenders: n, Pairs: max(pairs, 2*n)}, kind: loopKind{}, Long: n == buyers || spread.sessions == 1 && n != 64,
			})
		}
	}
	return cases
}

// pairsOf is how many acquisitions a peer is measured for. etcd has a tenth in a contest, for it may take 100 ms for each.
// A cohort has a hundred times as many, for it takes microseconds.
func (c Case) pairsOf(name string) int {
	if isCohort(name) {
		return 100 * c.Load.Pairs
	}
	if name != peer.Etcd || c.Load.Contenders == 1 || c.Load.Locks > 1 || c.Load.Pairs == 0 {
		return c.Load.Pairs
	}
	return max(2*c.Load.Contenders, c.Load.Pairs/10)
}

const beyondPlaces = "of this library 500 stand in the queue, the others wait in the process"

func contendedCost(n, sessions int) string {
	if n/sessions > waitersEach {
		return "processor time of the server and the clients; " + beyondPlaces
	}
	if n <= 8 {
		return "a commit, an event, and the list that follows it"
	}
	return "processor time of the server and the clients: lists grow with the queue"
}

func crowdCost(n, sessions int) string {
	if n/sessions > waitersEach {
		return "creates, then lists of a long queue; " + beyondPlaces
	}
	return "1,500 creates at once, then lists of a long queue"
}

func drainCases() []Case {
	one := Case{
		Name: "drain-256", Title: "256 waiters on 8 sessions of one process, released one after the other", Cost: "a commit, an event, a list",
		Peers: queues, Processes: 1, Sessions: crowdSessions, Load: load.Load{Locks: 1, Contenders: 256}, kind: drainKind{},
	}
	eight := one
	eight.Name, eight.Title, eight.Processes = "drain-256-8p", "256 waiters in 8 processes, released one after the other", crowd
	shared := one
	shared.Name, shared.Title, shared.Sessions = "drain-256-1s", "256 waiters on one session, released one after the other", 1
	return []Case{shared, one, eight}
}

func latchCase(handovers int) Case {
	return Case{
		Name: "latch", Title: "A leader closes its latch, and the other session leads", Cost: "a commit and an event; to Curator a list as well, to etcd its watch",
		Peers: latches, Processes: 1, Sessions: 2, Load: load.Load{Locks: 1, Contenders: 2}, kind: latchKind{}, handovers: handovers,
	}
}

func seedCases() []Case {
	var cases []Case
	for _, hold := range []int{0, 1} {
		for _, sessions := range []int{1, crowdSessions} {
			cases = append(cases, Case{
				Name:  fmt.Sprintf("buyers-%ds-%dms", sessions, hold),
				Title: fmt.Sprintf("1,500 buyers come at once to a fresh lock, sessions: %d, in the section: %d ms", sessions, hold),
				Cost:  crowdCost(buyers, sessions), Peers: queues, Processes: 1, Sessions: sessions, Fresh: true,
				Load: load.Load{Locks: 1, Contenders: buyers, Hold: time.Duration(hold) * time.Millisecond}, kind: loopKind{},
				Long: sessions == 1,
			})
		}
	}
	return cases
}

func isCohort(name string) bool { return name == peer.Cohort || name == peer.Lingering }

// cohortCases let callers of one process share a znode, which no other peer can.
func cohortCases(pairs int) []Case {
	var cases []Case
	for _, hold := range []int{0, 1} {
		cases = append(cases, Case{
			Name:  fmt.Sprintf("cohort-buyers-%dms", hold),
			Title: fmt.Sprintf("1,500 buyers in 8 processes come at once to a fresh lock, in the section: %d ms", hold),
			Cost:  "of the cohorts, 8 creates and the time in the section; of the others, 1,500 creates at once, then lists of a long queue",
			Peers: []string{peer.Cohort, peer.Ours, peer.Curator}, Base: peer.Cohort, Processes: crowd, Sessions: crowdSessions, Fresh: true,
			Load: load.Load{Locks: 1, Contenders: buyers, Hold: time.Duration(hold) * time.Millisecond}, kind: loopKind{},
		})
	}
	one := Case{Peers: []string{peer.Cohort, peer.Ours, peer.Curator}, Base: peer.Cohort, Processes: 1, Sessions: 1, kind: loopKind{}}
	one.Name, one.Title, one.Cost = "cohort-64", "64 goroutines of one process take turns, on 1 session", "a switch between goroutines"
	one.Load = load.Load{Locks: 1, Contenders: 64, Pairs: pairs}
	again := one
	again.Name, again.Title, again.Cost = "cohort-linger", "Lock and unlock again and again, nobody else there", "processor time of this library: nothing is sent"
	again.Peers, again.Base = []string{peer.Lingering, peer.Ours, peer.Curator}, peer.Lingering
	again.Load.Contenders = 1
	return append(cases, one, again)
}

func distinctCase(pairs int) Case {
	return Case{
		Name: "distinct-64", Title: "64 locks at once, one contender each, on 8 sessions", Cost: "throughput of the sessions",
		Peers: slices.Concat(locks, []string{peer.Unchecked, peer.Listed, peer.Raw}), Processes: 1, Sessions: crowdSessions,
		Load: load.Load{Locks: 64, Contenders: 64, Pairs: pairs}, kind: loopKind{},
	}
}

// basketCases take several locks together: free ones, and ones for which others contend.
func basketCases(pairs int) []Case {
	var cases []Case
	for _, n := range []int{2, 5, 10, 50} {
		free := Case{
			Name: fmt.Sprintf("basket-%d", n), Title: fmt.Sprintf("Lock and unlock %d locks together, nobody else there", n),
			Cost:  "of the multilock, a commit to lock and one to unlock; of the others, that for each lock",
			Peers: baskets, Processes: 1, Sessions: 1, kind: loopKind{},
			Load: load.Load{Locks: n, Basket: n, Contenders: 1, Pairs: max(pairs/n, 20)},
		}
		synced := free
		synced.Name, synced.Title, synced.Fsync = free.Name+"-fsync", free.Title+", with fsync", true
		cases = append(cases, free, synced)
	}
	for _, n := range []int{1000, 100, 20, 6} {
		cases = append(cases, Case{
			Name:  fmt.Sprintf("baskets-%d", n),
			Title: fmt.Sprintf("64 contenders on 8 sessions of one process, each for 5 of %d items together", n),
			Cost:  "the more baskets have an item in common, the wait for others; round trips",
			Peers: baskets, Processes: 1, Sessions: crowdSessions, kind: loopKind{},
			Load: load.Load{Locks: n, Basket: 5, Contenders: 64, Pairs: pairs},
		})
	}
	return cases
}

func waiterCases(n int) []Case {
	sessions := max(crowdSessions, (n+waitersEach-1)/waitersEach)
	waiters := func(locks int) Case {
		return Case{
			Name: fmt.Sprintf("waiters-%d", locks), Title: fmt.Sprintf("%d waiters come at once, locks: %d, sessions: %d", n, locks, sessions),
			Cost: "one list for each waiter, as long as its queue", Peers: onZK, Processes: 1, Sessions: sessions, Fresh: true,
			Load: load.Load{Locks: locks, Contenders: n}, kind: waitersKind{},
		}
	}
	storm := waiters(1)
	storm.Name, storm.Title = "storm", "1,000 waiters of one lock lose their connections at once"
	storm.Cost = "the client's pause before it connects again, then what each waiter reads"
	storm.Load.Contenders, storm.Sessions, storm.kind = 1000, crowdSessions, stormKind{}
	return []Case{waiters(100), waiters(1), storm}
}
