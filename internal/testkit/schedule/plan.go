package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// plan is the content of one schedule. The seed alone determines the plan: it lists each client's actions, and a client's
// troubles depend on the number of its own request of a kind, so that the order in which goroutines run hardly matters.
type plan struct {
	recipe  Recipe
	seed    uint64
	timeout time.Duration
	clients []clientPlan
	limits  []limitChange // of a shared limit
}

// limitChange is a change of the shared limit, some time after the change before.
type limitChange struct {
	after time.Duration
	limit int
}

// clientPlan is one client's part of the plan.
type clientPlan struct {
	standard bool            // StandardErrorPolicy
	attempts int             // limit of the retry policy; 0: no limit
	elapsed  time.Duration   // the same; 0: no limit
	isNarrow bool            // the session has just the bytes of the largest request
	jitter   bool            // waits before retries are random, which is the default
	troubles map[nth]trouble // pings have no troubles
	handover map[int]trouble // troubles of the next contender in the queue when this client deletes a znode, by number of the delete
	workers  [][]step        // steps of the goroutines that share the client
	closeAt  time.Duration   // time of closing, in the middle of the schedule; 0: at the end
}

// nth is a client's n-th request of a kind.
type nth struct {
	op zktest.Op
	n  int
}

// troubledOps are the kinds of requests that can meet trouble, with the number of requests of each kind that can.
var troubledOps = []nth{ //nolint:gochecknoglobals // a constant list
	{zktest.OpConnect, 50},
	{zktest.OpCreate2, 30},
	{zktest.OpCreateContainer, 5},
	{zktest.OpDelete, 30},
	{zktest.OpGetData, 60},
	{zktest.OpGetChildren2, 60},
	{zktest.OpMulti, 100},
	{zktest.OpSync, 20},
	{zktest.OpSetData, 5},
	{zktest.OpSetWatches, 20},
}

// troubledOps returns the kinds of requests that can meet trouble. A client of a server without create2 sends creates.
func (p plan) troubledOps() []nth {
	if p.recipe.Dialect == zktest.ClickHouseKeeper {
		return append(slices.Clone(troubledOps), nth{zktest.OpCreate, 30})
	}
	return troubledOps
}

// sessionBytes returns the bound on the session's bytes: those of the largest request, or else the default.
func (p plan) sessionBytes(c clientPlan) int {
	const name = len("_c_00000000-0000-0000-0000-000000000000-__WRIT__0000000000") + len("/leases/") + 4 // at most
	switch {
	case !c.isNarrow, len(p.recipe.Beside) > 0: // in a narrow session, several calls that hold a part each can't go on
		return 512 << 10
	case p.recipe.Limit > 0:
		return (p.recipe.Limit + 1) * (len(lock) + name) // the turn and the permits
	case p.recipe.IsShared != nil:
		return 2 * (len(lock) + name) // for a downgrade
	default:
		return len(lock) + name
	}
}

// mayGiveUp reports whether the retry policy has a bound.
func (c clientPlan) mayGiveUp() bool { return c.attempts > 0 || c.elapsed > 0 }

// retries returns a policy whose waits are too short for their jitter to matter, so that a schedule replays, or else the
// default policy.
func (c clientPlan) retries() recipes.RetryPolicy {
	policy := recipes.RetryPolicy{MaxAttempts: c.attempts, MaxElapsed: c.elapsed}
	if !c.jitter {
		policy.InitialInterval, policy.MaxInterval = time.Nanosecond, time.Nanosecond
	}
	return policy
}

// step is one action of a worker: the worker waits, tries to acquire the lock, and holds it.
type step struct {
	kind  stepKind
	lock  int // 1: the shared lock, if the recipe has one
	think time.Duration
	limit time.Duration // limit of the wait for the lock; 0: none
	hold  time.Duration
	n     int // number of permits of a semaphore
}

type stepKind int

const (
	plain stepKind = iota
	try
	reenter // re-enters, and releases the inner lease first
	overlap // re-enters, and releases the outer lease first
	do
	revokeOther
	stepKinds
	downgrade = stepKinds // only for recipes with a shared lock: acquires the shared lock under the exclusive lock, and releases the latter first
)

func (k stepKind) String() string {
	return [...]string{"acquire", "try", "re-enter", "overlap", "do", "revoke", "downgrade"}[k]
}

// trouble is a fault of a request, and its duration.
type trouble struct {
	kind troubleKind
	d    time.Duration
}

type troubleKind int

const (
	loseRequest troubleKind = iota
	loseReply
	hang
	delay
	disconnect
	expire
	partitionLine
	freezeServer
	freezeBoth
	isolateServer
	isolateBoth
	stopServer
	stopBoth
	deleteOwn
	deleteDir
	reap
	troubleKinds
)

func (k troubleKind) String() string {
	return [...]string{
		"lost request", "lost reply", "no answer", "delay", "disconnect", "expiry", "partition", "freeze", "freeze both",
		"isolate", "isolate both", "stop", "stop both", "own znode deleted", "directory deleted", "reap",
	}[k]
}

const (
	scheduleClients = 3
	serversEach     = 2  // servers of each client alone, so that a server's address identifies the client
	handovers       = 20 // deletes of each client
	maxLimitChanges = 12 // of a shared limit

	// spareServers keep the quorum while all servers of all clients are stopped.
	spareServers = scheduleClients*serversEach + 1
)

// newPlan draws a plan.
func newPlan(recipe Recipe, seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := plan{recipe: recipe, seed: seed, timeout: timeouts[r.IntN(len(timeouts))]}
	density := []float64{0.01, 0.03, 0.08, 0.2}[r.IntN(4)]
	for range scheduleClients {
		p.clients = append(p.clients, p.drawClient(r, density))
	}
	if recipe.SharedLimit != "" {
		for range 1 + r.IntN(maxLimitChanges) {
			p.limits = append(p.limits, limitChange{p.span(r, 1), r.IntN(recipe.Limit + 1)})
		}
		p.limits = append(p.limits, limitChange{p.span(r, 1), recipe.Limit}) // so that every request is served in the end
	}
	return p
}

func (p plan) drawClient(r *rand.Rand, density float64) clientPlan {
	c := clientPlan{
		standard: r.IntN(5) == 0, jitter: r.IntN(5) == 0,
		troubles: map[nth]trouble{}, handover: map[int]trouble{},
	}
	if r.IntN(5) == 0 {
		c.attempts = 1 + r.IntN(3)
	}
	if r.IntN(5) == 0 {
		c.elapsed = p.span(r, 1)
	}
	if c.isNarrow = r.IntN(4) == 0; c.isNarrow {
		c.jitter = true // because a contender polls while its place has an old znode that can't be deleted
	}
	if r.IntN(6) > 0 { // all other clients are quiet, and must keep their leases
		for _, kind := range p.troubledOps() {
			for n := range kind.n {
				if r.Float64() < density {
					c.troubles[nth{kind.op, n}] = p.drawTrouble(r)
				}
			}
		}
	}
	for n := range handovers {
		if r.IntN(3) == 0 {
			c.handover[n] = trouble{[]troubleKind{disconnect, expire, deleteOwn, freezeBoth}[r.IntN(4)], p.span(r, 1)}
		}
	}
	for range 1 + r.IntN(2) {
		var steps []step
		for range 1 + r.IntN(3) {
			steps = append(steps, p.drawStep(r))
		}
		c.workers = append(c.workers, steps)
	}
	if r.IntN(6) == 0 {
		c.closeAt = p.span(r, 4)
	}
	return c
}

// span returns a random time of up to the given number of session timeouts; short and long times are equally likely.
func (p plan) span(r *rand.Rand, timeouts float64) time.Duration {
	longest := timeouts * float64(p.timeout)
	if r.IntN(2) == 0 {
		longest /= 10
	}
	return time.Duration(r.Float64() * longest).Round(time.Microsecond)
}

func (p plan) drawStep(r *rand.Rand) step {
	kinds := stepKinds
	if p.recipe.IsShared != nil {
		kinds++
	}
	s := step{kind: stepKind(r.IntN(int(kinds))), think: p.span(r, 0.5), hold: p.span(r, 2)}
	if p.recipe.IsShared != nil && s.kind != downgrade {
		s.lock = r.IntN(2)
	}
	if r.IntN(3) == 0 {
		s.limit = p.span(r, 2)
	}
	if r.IntN(4) == 0 {
		s.think, s.hold = 0, 0
	}
	if p.recipe.Limit > 0 {
		s.n = 1 + r.IntN(p.recipe.Limit)
		if p.recipe.SharedLimit == "" && s.kind != do && r.IntN(8) == 0 {
			s.n = p.recipe.Limit + 1 // refused at once
		}
	}
	return s
}

func (p plan) drawTrouble(r *rand.Rand) trouble {
	t := trouble{troubleKind(r.IntN(int(troubleKinds))), p.span(r, 1.5)}
	switch {
	case t.kind == delay:
		t.d /= 8 // most answers come before the client gives up the connection
	case t.kind >= expire && r.IntN(2) == 0:
		t.kind = troubleKind(r.IntN(int(expire))) // prefer the small troubles
	}
	return t
}

func (t trouble) String() string { return fmt.Sprintf("%v %v", t.kind, t.d) }

// String returns the plan for a human reader.
func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, T = %v, limits %v\n", p.seed, p.timeout, p.limits)
	for i, c := range p.clients {
		fmt.Fprintf(&b, "client %d: standard policy %v, attempts %d within %v, narrow %v, jitter %v, closed at %v, handovers %v\n",
			i, c.standard, c.attempts, c.elapsed, c.isNarrow, c.jitter, c.closeAt, c.handover)
		for w, steps := range c.workers {
			fmt.Fprintf(&b, "  worker %d: %+v\n", w, steps)
		}
		for _, kind := range p.troubledOps() {
			for n := range kind.n {
				if t, ok := c.troubles[nth{kind.op, n}]; ok {
					fmt.Fprintf(&b, "  %v %d: %v\n", kind.op, n, t)
				}
			}
		}
	}
	return b.String()
}
