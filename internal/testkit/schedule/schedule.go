package schedule

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// FirstSeed is the flag -seed: the first seed of everything random.
var FirstSeed = flag.Uint64("seed", 1, "the first seed") //nolint:gochecknoglobals // a flag

var (
	schedules = flag.Int("schedules", 0, "how many fault schedules to run; 0: what takes seconds") //nolint:gochecknoglobals // a flag
	verbose   = flag.Bool("plan", false, "print what each fault schedule consists of")             //nolint:gochecknoglobals // a flag
)

// lock is the path of the contended lock.
const lock = "/locks/a"

// timeouts are the session timeouts of schedules.
var timeouts = []time.Duration{ //nolint:gochecknoglobals // a constant list
	time.Second, 2 * time.Second, 4 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// Recipe is the lock that schedules are played on.
type Recipe struct {
	Package string // its folder in recipes/
	// New returns the lock of a client on path; for a read-write lock, the write lock and the read lock, in this order.
	New func(tb testing.TB, client *recipes.Client, path string) []Lock
	// NewNumbered is New for locks that differ from client to client. The clients are numbered from 0.
	NewNumbered func(tb testing.TB, client *recipes.Client, path string, number int) []Lock
	// Beside are directories in which the locks of NewNumbered hold other znodes while they wait. So an acquisition may fail because such a
	// znode is lost.
	Beside []string
	// IsShared reports whether the contender at path may hold the lock together with others, as a reader may. Nil: no contender
	// may.
	IsShared func(path string) bool
	// Limit is the number of permits of a semaphore, 0 for other locks. A semaphore has its permits in path/leases, and its
	// waiters in path/locks. It never re-enters. Its Lock also has AcquireN and TryAcquireN.
	Limit int
	// SharedLimit is the path of the znode with the limit of a semaphore, which changes while the schedule runs, up to Limit. "": New
	// has the limit.
	SharedLimit string
	// NewInCohort is New for locks that callers in one client pass on to each other: their leases follow each other on one
	// znode, by Release. Several goroutines then perform each worker's steps. The clients are numbered from 0.
	NewInCohort func(tb testing.TB, client *recipes.Client, path string, number int) []Lock
	// MayFail reports whether a Do of a client with troubles may fail with err. Nil: not with errors of the recipe's own.
	MayFail func(err error) bool
	// MaxHold is the longest time for which a lease is held, 0 for any time.
	MaxHold time.Duration
	// Dialect is the kind of the servers; the zero Dialect is the default.
	Dialect zktest.Dialect
	// Fewer runs a quarter of the schedules, for locks on the queue of the mutex, unless -schedules gives a number.
	Fewer bool
}

// hasCohorts reports whether a znode may stay after the release of a lease.
func (r Recipe) hasCohorts() bool { return r.NewInCohort != nil }

// dirs returns the directories of the lock's znodes, the holders' directory first.
func (r Recipe) dirs() []string {
	if r.Limit > 0 {
		return []string{lock + "/leases", lock + "/locks"}
	}
	return append([]string{lock}, r.Beside...)
}

// Lock has the methods of a lock used by schedules.
type Lock interface {
	Acquire(ctx context.Context) (*recipes.Lease, error)
	TryAcquire(ctx context.Context) (*recipes.Lease, error)
	Do(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error
	Participants(ctx context.Context) ([]recipes.Participant, error)
}

// insiders is the number of goroutines of a cohort that perform a worker's steps.
const insiders = 3

// Indexes into the locks returned by Recipe.New.
const exclusive, shared = 0, 1

// arena is one schedule in progress.
type arena struct {
	t          *testing.T
	plan       plan
	srv        *zktest.Server
	referee    *referee
	contenders []*contender
	owner      map[string]*contender // by server address
}

// newArena connects the clients before any trouble begins.
func newArena(t *testing.T, p plan) *arena {
	t.Helper()
	// The servers report as rarely as real servers may, so that the margins are small.
	srv := zktest.NewServer(t, zktest.WithServers(scheduleClients*serversEach+spareServers),
		zktest.WithDialect(p.recipe.Dialect), zktest.WithTickTime(time.Millisecond), zktest.WithTouchInterval(p.timeout/4))
	a := &arena{
		t: t, plan: p, srv: srv, referee: newReferee(p.recipe, srv, p.timeout),
		owner: map[string]*contender{},
	}
	for i, clientPlan := range p.clients {
		if p.recipe.hasCohorts() {
			clientPlan.workers = slices.Repeat(clientPlan.workers, insiders)
		}
		c := &contender{
			id: i, plan: clientPlan, servers: srv.Addrs()[i*serversEach:][:serversEach],
			referee: a.referee, requests: map[zktest.Op]int{},
		}
		policy := recipes.SessionErrorPolicy
		if clientPlan.standard {
			policy = recipes.StandardErrorPolicy
		}
		c.client = zkclient.ConnectTo(t, srv, c.servers, recipes.WithSessionTimeout(p.timeout),
			recipes.WithErrorPolicy(policy), recipes.WithRetryPolicy(clientPlan.retries()), recipes.WithMaxSessionBytes(p.sessionBytes(clientPlan)))
		switch {
		case p.recipe.hasCohorts():
			c.locks = p.recipe.NewInCohort(t, c.client, lock, i)
		case p.recipe.NewNumbered != nil:
			c.locks = p.recipe.NewNumbered(t, c.client, lock, i)
		default:
			c.locks = p.recipe.New(t, c.client, lock)
		}
		a.contenders = append(a.contenders, c)
		for _, server := range c.servers {
			a.owner[server] = c
		}
	}
	return a
}

// run lets the workers perform their steps under the plan's troubles, and then checks for leftovers.
func (a *arena) run() {
	calm := a.srv.Inject(a.meet)
	stop := make(chan struct{})
	go a.referee.patrol(a.contenders, stop) // until stop is closed
	defer close(stop)
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	var workers sync.WaitGroup
	for _, c := range a.contenders {
		for _, steps := range c.plan.workers {
			workers.Go(func() { c.work(ctx, steps) }) // joined below
		}
		if c.plan.closeAt > 0 {
			workers.Go(func() { // joined below
				bubble.Pause(c.plan.closeAt)
				c.close()
			})
		}
	}
	workers.Go(a.changeLimit) // joined below
	done := make(chan struct{})
	go func() { // ends with the workers
		workers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(tooLong):
		a.referee.reportFault("stuck: %v", a.znodes())
		cancel()
		<-done
	}
	calm()
	synctest.Wait() // wait until the rule has finished: it could freeze a server that is already healed
	a.srv.Heal()
	require.NoError(a.t, a.srv.Restart())
	a.checkGhosts()
	for _, c := range a.contenders {
		if c.plan.closeAt == 0 {
			c.close()
		}
	}
	a.checkSessions()
}

// changeLimit writes the shared limits of the plan.
func (a *arena) changeLimit() {
	for _, change := range a.plan.limits {
		bubble.Pause(change.after)
		a.srv.Put(a.plan.recipe.SharedLimit, binary.BigEndian.AppendUint32(nil, uint32(change.limit)))
	}
}

// znodes returns the paths of all contenders.
func (a *arena) znodes() (all []string) {
	for _, dir := range a.plan.recipe.dirs() {
		all = append(all, a.referee.queueIn(dir)...)
	}
	return all
}

// checkGhosts checks that every znode is gone within the session timeout, counted from the servers' next report, although the
// clients are still alive.
func (a *arena) checkGhosts() {
	synctest.Wait() // requests sent into a silence arrive now
	for end := time.Now().Add(a.plan.timeout*5/4 + 5*time.Second); len(a.znodes()) > 0; bubble.Pass(a.plan.timeout / 50) {
		if time.Now().After(end) {
			a.referee.reportFault("ghosts: %v", a.znodes())
			return
		}
	}
}

// checkSessions checks that the only remaining sessions are sessions without znodes whose handshake was never answered, and that
// even these expire.
func (a *arena) checkSessions() {
	for _, session := range a.srv.Sessions() {
		if len(session.Ephemerals) > 0 {
			a.referee.reportFault("a session is left with %v", session.Ephemerals)
		}
	}
	bubble.Pass(a.plan.timeout*5/4 + time.Second)
	if left := a.srv.Sessions(); len(left) > 0 {
		a.referee.reportFault("%d sessions outlive their clients", len(left))
	}
	a.referee.mu.Lock()
	defer a.referee.mu.Unlock()
	for _, t := range a.referee.heldLeases {
		if t.lease.Context().Err() == nil {
			a.referee.reportFaultLocked("%s: a lease stands after all is over", t.c)
		}
	}
}

// runSchedule runs a schedule in a bubble. It leaves no goroutine behind, because otherwise the bubble would not end.
func runSchedule(t *testing.T, recipe Recipe, seed uint64) {
	t.Helper()
	p := newPlan(recipe, seed)
	if *verbose {
		fmt.Println(p)
	}
	hint := fmt.Sprintf("\nto see it again: go test ./recipes/%s -run '^%s$' -schedules 1 -seed %d -plan\n", recipe.Package, strings.Split(t.Name(), "/")[0], seed)
	stuck := time.AfterFunc(2*time.Minute, func() { panic("a schedule takes minutes of real time" + hint) })
	defer stuck.Stop()
	ended := false
	defer func() {
		if !ended { // a panic: the bubble's goroutines wait for each other
			fmt.Fprintln(os.Stderr, hint)
		}
	}()
	testkit.Bubble(t, func(t *testing.T) {
		t.Helper()
		a := newArena(t, p)
		a.run()
		if verdict := a.referee.verdict(); verdict != "" {
			t.Errorf("%s\n%s%s", verdict, p, hint)
		}
	})
	ended = true
}

// Run plays schedules on a recipe: as many as -schedules says, or by default as many as take seconds.
//
// Three clients contend for one lock while requests and answers get lost, connections and sessions end, servers hang or are cut
// off, and znodes vanish, all at random. Whatever happens, no two clients that exclude each other hold the lock together,
// grants follow the queue's order, with growing tokens, no lease outlives its proof, and nothing is left behind.
func Run(t *testing.T, recipe Recipe) {
	t.Helper()
	Each(t, recipe.Fewer, func(t *testing.T, seed uint64) {
		t.Helper()
		runSchedule(t, recipe, seed)
	})
}

// Each calls play with one seed after another: as many as -schedules says, or by default as many as take seconds. If fewer is
// true, the default is a quarter.
func Each(t *testing.T, fewer bool, play func(t *testing.T, seed uint64)) {
	t.Helper()
	n := *schedules
	switch {
	case n > 0:
	case testing.Short():
		n = 40
	case testkit.IsRaced:
		n = 300
	default:
		n = 1500
	}
	if fewer && *schedules == 0 {
		n /= 4
	}
	shards := min(runtime.GOMAXPROCS(0), n)
	for shard := range shards {
		t.Run(fmt.Sprintf("shard %d of %d", shard+1, shards), func(t *testing.T) {
			t.Parallel()
			for i := shard; i < n; i += shards {
				play(t, *FirstSeed+uint64(i))
			}
		})
	}
}
