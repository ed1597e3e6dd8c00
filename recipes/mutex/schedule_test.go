package mutex_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

var (
	schedules = flag.Int("schedules", 0, "how many fault schedules to run; 0: what takes seconds")
	verbose   = flag.Bool("plan", false, "print what each fault schedule consists of")
)

// arena is one schedule under way.
type arena struct {
	t          *testing.T
	plan       plan
	srv        *zktest.Server
	referee    *referee
	contenders []*contender
	owner      map[string]*contender // by the server's address
}

// newArena connects the clients while all is well.
func newArena(t *testing.T, p plan) *arena {
	t.Helper()
	// The servers' reports are as rare as any server allows, so that the margins are small.
	srv := zktest.NewServer(t, zktest.WithServers(scheduleClients*serversEach),
		zktest.WithTickTime(time.Millisecond), zktest.WithTouchInterval(p.timeout/4))
	a := &arena{
		t: t, plan: p, srv: srv, referee: newReferee(srv, p.timeout),
		owner: map[string]*contender{},
	}
	for i, clientPlan := range p.clients {
		c := &contender{
			id: i, plan: clientPlan, servers: srv.Addrs()[i*serversEach:][:serversEach],
			referee: a.referee, requests: map[zktest.Op]int{},
		}
		policy := recipes.SessionErrorPolicy
		if clientPlan.standard {
			policy = recipes.StandardErrorPolicy
		}
		c.client = connectTo(t, srv, c.servers, p.timeout, recipes.WithErrorPolicy(policy), recipes.WithRetryPolicy(clientPlan.retries()))
		c.mutex = mutexOn(t, c.client, lock)
		a.contenders = append(a.contenders, c)
		for _, server := range c.servers {
			a.owner[server] = c
		}
	}
	return a
}

// run lets the workers do their steps under the plan's troubles, and then checks that
// nothing is left.
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
				pause(c.plan.closeAt)
				c.close()
			})
		}
	}
	done := make(chan struct{})
	go func() { // ends with the workers
		workers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(tooLong):
		a.referee.reportFault("stuck: %v", a.srv.Children(lock))
		cancel()
		<-done
	}
	calm()
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

// checkGhosts: within the session timeout, which counts from the servers' next report,
// every znode is gone, though the clients live.
func (a *arena) checkGhosts() {
	pass(0) // what was sent into a silence arrives now
	for end := time.Now().Add(a.plan.timeout*5/4 + 5*time.Second); len(a.srv.Children(lock)) > 0; pass(a.plan.timeout / 50) {
		if time.Now().After(end) {
			a.referee.reportFault("ghosts: %v", a.srv.Children(lock))
			return
		}
	}
}

// checkSessions: what is left of a session is at most one whose handshake was never
// answered, and it has nothing.
func (a *arena) checkSessions() {
	for _, session := range a.srv.Sessions() {
		if len(session.Ephemerals) > 0 {
			a.referee.reportFault("a session is left with %v", session.Ephemerals)
		}
	}
	pass(a.plan.timeout*5/4 + time.Second)
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

// runSchedule runs one in a bubble. It leaves no goroutine: the bubble would not end.
func runSchedule(t *testing.T, seed uint64) {
	t.Helper()
	p := newPlan(seed)
	if *verbose {
		fmt.Println(p)
	}
	hint := fmt.Sprintf("\nto see it again: go test ./recipes/mutex -run TestFaultSchedules -schedules 1 -seed %d -plan\n", seed)
	stuck := time.AfterFunc(2*time.Minute, func() { panic("a schedule takes minutes of real time" + hint) })
	defer stuck.Stop()
	ended := false
	defer func() {
		if !ended { // a panic: the bubble's goroutines wait for each other
			fmt.Fprintln(os.Stderr, hint)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t, p)
		a.run()
		if verdict := a.referee.verdict(); verdict != "" {
			t.Errorf("%s\n%s%s", verdict, p, hint)
		}
	})
	ended = true
}

// Three clients fight for one lock while requests and answers get lost, connections and
// sessions end, servers hang or are cut off, and znodes vanish, all at random. Whatever
// happens: one holder at a time, in the queue's order, with growing tokens; no lease
// outlives what proves it; nothing is left behind.
func TestFaultSchedules(t *testing.T) {
	n := *schedules
	switch {
	case n > 0:
	case *exhaustive:
		n = 10_000
	case testing.Short():
		n = 40
	case raced:
		n = 300
	default:
		n = 1500
	}
	shards := min(runtime.GOMAXPROCS(0), n)
	for shard := range shards {
		t.Run(fmt.Sprintf("shard %d of %d", shard+1, shards), func(t *testing.T) {
			t.Parallel()
			for i := shard; i < n; i += shards {
				runSchedule(t, *firstSeed+uint64(i))
			}
		})
	}
}
