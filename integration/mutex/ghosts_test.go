package mutex_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// aFifth matches a fifth of all requests, drawn from a seed.
func aFifth(seed, stream uint64) faultproxy.Match {
	var mu sync.Mutex // protects dice
	dice := rand.New(rand.NewPCG(seed, stream))
	return func(r faultproxy.Request) bool {
		if !faultproxy.Any()(r) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(5) == 0
	}
}

// The fault that tests in virtual time repeat 20,000 times, here 2,000 times on a real server, or 400 in the short form: a fifth of all answers
// is lost, and nothing is left behind, although no session ends.
func TestLostAnswersOfARealServerLeaveNoGhost(t *testing.T) {
	const clients = 8 // two for each of four locks
	each := testkit.Shorter(250, 50)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	brisk := recipes.WithRetryPolicy(recipes.RetryPolicy{InitialInterval: 2 * time.Millisecond, MaxInterval: 20 * time.Millisecond})
	base := testkit.Path(t)
	var sessions []int64
	var rules []*faultproxy.Rule
	var workers sync.WaitGroup
	failures := make(chan error, clients)
	for i := range clients {
		client, proxy := proxiedFor(t, patience, brisk)
		sessions = append(sessions, client.Conn().SessionID())
		rules = append(rules, proxy.DropReply(aFifth(seed, uint64(i)), -1))
		m := newMutex(t, client, fmt.Sprintf("%s/%d", base, i%4))
		workers.Go(func() {
			if err := acquireOften(t, m, each); err != nil {
				failures <- fmt.Errorf("client %d: %w", i, err)
			}
			if client.Conn().SessionID() != sessions[i] {
				failures <- fmt.Errorf("client %d: its session has ended, and that cleans up as well", i)
			}
		})
	}
	workers.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	lost := 0
	for _, rule := range rules {
		rule.Remove()
		lost += rule.Hits()
	}
	t.Logf("%d acquires, %d answers lost", clients*each, lost)
	require.Greater(t, lost, clients*each/2, "too few faults to prove anything")
	for i := range 4 {
		path := fmt.Sprintf("%s/%d", base, i)
		testkit.Eventually(t, func() bool { return len(children(t, path)) == 0 }, "ghosts below "+path)
	}
}

// acquireOften acquires and releases n times.
func acquireOften(t *testing.T, m *mutex.InterProcessMutex, n int) error {
	t.Helper()
	for range n {
		lease, err := m.Acquire(t.Context())
		if err != nil {
			return err
		}
		if err := lease.Release(); err != nil {
			return err
		}
	}
	return nil
}

// eager is a host provider that reconnects at once, because zk.Conn pauses for a second each time with a single
// address.
type eager struct{ server string }

func (e *eager) Init(servers []string) error { e.server = servers[0]; return nil }
func (e *eager) Len() int                    { return 1 }
func (e *eager) Next() (string, bool)        { return e.server, false }
func (e *eager) Connected()                  {}

// The test above can fail: the same faults make zk.Conn's own protected create leave ghosts.
func TestZKConnLeavesGhosts(t *testing.T) {
	const creates = 300
	path := testkit.Path(t)
	_, err := observer(t).Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	proxy := faultproxy.New(t, ensemble.Shared(t).Server(0))
	conn, _, err := zk.Connect([]string{proxy.Addr()}, patience,
		zk.WithHostProvider(&eager{}), zk.WithLogger(log.New(io.Discard, "", 0)))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	rule := proxy.DropReply(aFifth(1, 1), -1)
	t.Cleanup(rule.Remove)
	failed := 0
	for range creates {
		created, err := conn.CreateProtectedEphemeralSequential(path+"/lock-", nil, zk.WorldACL(zk.PermAll))
		if err != nil {
			failed++
			continue
		}
		for err = conn.Delete(created, -1); err != nil && !errors.Is(err, zk.ErrNoNode); {
			err = conn.Delete(created, -1)
		}
	}
	ghosts := len(children(t, path))
	t.Logf("%d of %d creates failed, %d ghosts", failed, creates, ghosts)
	require.Positive(t, ghosts)
}
