package mutex_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// breakage is a fault set up before an Acquire. Afterwards, all of its rules must have acted.
type breakage func(p *faultproxy.Proxy) []*faultproxy.Rule

func lostReplies(ops ...string) breakage {
	return func(p *faultproxy.Proxy) []*faultproxy.Rule {
		var rules []*faultproxy.Rule
		for _, op := range ops {
			rules = append(rules, p.DropReply(faultproxy.Op(op), 1))
		}
		return rules
	}
}

func lostRequests(op string, n int) breakage {
	return func(p *faultproxy.Proxy) []*faultproxy.Rule {
		return []*faultproxy.Rule{p.DropRequest(faultproxy.Op(op), n)}
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func TestLostAnswersOfAcquire(t *testing.T) {
	cases := []struct {
		name    string
		fresh   bool // the parent does not exist yet
		fault   breakage
		creates int // the most create requests at the server; 0: any number
	}{
		{"create answer", false, lostReplies("create2"), 1},
		{"create answer, parent missing", true, lostReplies("create2"), 0},
		{"create answer and sync", false, lostReplies("create2", "sync"), 1},
		{"create answer and sync twice", false, lostReplies("create2", "sync", "sync"), 1},
		{"create answer and search", false, lostReplies("create2", "getChildren2"), 1},
		{"create answer, sync and search", false, lostReplies("create2", "sync", "getChildren2"), 1},
		{"create answer and three searches", false, lostReplies("create2", "getChildren2", "getChildren2", "getChildren2"), 1},
		{"create request", false, lostRequests("create2", 1), 0},
		{"create request three times", false, lostRequests("create2", 3), 0},
		{"createContainer answer", true, lostReplies("createContainer"), 0},
		{"createContainer request", true, lostRequests("createContainer", 1), 0},
		{"createContainer and create answers", true, lostReplies("createContainer", "create2"), 0},
		{"create answer and own getData", false, lostReplies("create2", "getData"), 1},
		{"own getData", false, lostReplies("getData"), 1}, // after the grant
		{"own getData twice", false, lostReplies("getData", "getData"), 1},
		{"children", false, lostReplies("getChildren2"), 1},
		{"own getData and children", false, lostReplies("getData", "getChildren2"), 1},
		{"everything once", true, lostReplies("createContainer", "create2", "sync", "getData", "getChildren2"), 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			client, proxy := proxiedFor(t, calm)
			path := testkit.Path(t)
			m := newMutex(t, client, path)
			if !tc.fresh {
				require.NoError(t, acquire(t, m).Release())
			}
			proxy.ResetCounts()
			rules := tc.fault(proxy)
			lease := acquire(t, m)
			for i, rule := range rules {
				testkit.Eventually(t, func() bool { return isClosed(rule.Done()) }, fmt.Sprintf("fault %d", i))
			}
			require.Equal(t, []string{lease.Path()}, queue(t, path), "one znode, the lease's")
			require.Equal(t, created(t, lease.Path()), lease.FencingToken())
			if tc.creates > 0 {
				require.Equal(t, tc.creates, proxy.Counts().Requests["create2"], "the created znode has to be found again")
			}
			stands(t, lease)
			require.NoError(t, lease.Release())
			require.Empty(t, children(t, path), "a ghost")
		})
	}
}

func TestLostCreateAnswerThenSessionExpired(t *testing.T) {
	client, proxy := proxiedFor(t, calm)
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	require.NoError(t, acquire(t, m).Release())
	arrived, release := proxy.HoldReply(faultproxy.Op("create2"))
	defer release()
	session := client.Conn().SessionID()
	done := waiting(t, testkit.Context(t), m, path, 1)
	<-arrived
	over := outage(t, client, proxy)
	old := queue(t, path)
	expire(t, client)
	require.Empty(t, children(t, path))
	over()
	lease := granted(t, done)
	require.NotEqual(t, session, client.Conn().SessionID(), "the test needs a new session")
	require.NotEqual(t, old, queue(t, path))
	require.Equal(t, []string{lease.Path()}, queue(t, path))
	require.NoError(t, lease.Release())
	require.Empty(t, children(t, path))
}

func TestLostAnswersOfRelease(t *testing.T) {
	for name, fault := range map[string]breakage{
		"answer":            lostReplies("delete"),
		"answer, twice":     lostReplies("delete", "delete"),
		"request":           lostRequests("delete", 1),
		"request, 3 times":  lostRequests("delete", 3),
		"answer after list": lostReplies("getChildren2", "delete"),
	} {
		t.Run(name, func(t *testing.T) {
			client, proxy := proxiedFor(t, calm)
			path := testkit.Path(t)
			m := newMutex(t, client, path)
			require.NoError(t, acquire(t, m).Release())
			rules := fault(proxy)
			lease := acquire(t, m)
			require.NoError(t, lease.Release())
			require.Empty(t, children(t, path))
			for _, rule := range rules {
				require.Positive(t, rule.Hits())
			}
			require.ErrorIs(t, lease.Release(), recipes.ErrNotHeld)
			require.NoError(t, acquire(t, m).Release(), "the mutex goes on working")
		})
	}
}

func TestLostAnswersOfTryAcquire(t *testing.T) {
	holder := direct(t)
	client, proxy := proxiedFor(t, calm)
	for _, ops := range [][]string{{"create2"}, {"create2", "getData"}, {"getChildren2"}, {"delete"}} {
		t.Run(strings.Join(ops, " and "), func(t *testing.T) {
			path := testkit.Path(t)
			lease := acquire(t, newMutex(t, holder, path))
			rules := lostReplies(ops...)(proxy)
			_, err := newMutex(t, client, path).TryAcquire(testkit.Context(t))
			require.ErrorIs(t, err, recipes.ErrNotAcquired)
			for _, rule := range rules {
				require.Equal(t, 1, rule.Hits())
			}
			require.Equal(t, []string{lease.Path()}, queue(t, path), "gone when TryAcquire returns")
			require.NoError(t, lease.Release())
		})
	}
}

// TestRandomLostAnswers loses one answer in five, of any kind, while four goroutines on two clients take turns.
func TestRandomLostAnswers(t *testing.T) {
	const workers, loss = 4, 0.2
	rounds := testkit.Shorter(80, 16)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var mu sync.Mutex // protects random
	random := rand.New(rand.NewPCG(seed, 1))
	unlucky := func(r faultproxy.Request) bool {
		if !faultproxy.Any()(r) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		return random.Float64() < loss
	}
	brisk := recipes.WithRetryPolicy(recipes.RetryPolicy{InitialInterval: 5 * time.Millisecond, MaxInterval: 50 * time.Millisecond})
	path := testkit.Path(t)
	var mutexes []*mutex.InterProcessMutex
	var rules []*faultproxy.Rule
	for range 2 {
		client, proxy := proxiedFor(t, 3*calm, brisk)
		mutexes = append(mutexes, newMutex(t, client, path))
		rules = append(rules, proxy.DropReply(unlucky, -1))
	}
	var section judge.Section
	failures := make(chan error, workers)
	var group sync.WaitGroup
	began := time.Now()
	for w := range workers {
		group.Go(func() {
			for round := range rounds {
				lease, err := mutexes[w%2].Acquire(t.Context())
				if err != nil {
					failures <- fmt.Errorf("acquire %d of worker %d: %w", round, w, err)
					return
				}
				section.Enter(lease.FencingToken())
				section.Leave()
				if err := lease.Release(); err != nil {
					failures <- fmt.Errorf("release %d of worker %d: %w", round, w, err)
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	require.NoError(t, section.Err())
	lost := 0
	for _, rule := range rules {
		rule.Remove()
		lost += rule.Hits()
	}
	t.Logf("%d acquires, %d answers lost, %v", rounds*workers, lost, time.Since(began))
	require.Greater(t, lost, rounds*workers/2, "too few faults to prove anything")
	require.Empty(t, children(t, path), "a ghost")
}
