package points_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// wholeQueue queues as many clients for one held lock, each of which meets the same fault at the same point. All of
// them get the lock, one at a time.
func wholeQueue(t *testing.T, w *world, seed uint64) {
	t.Helper()
	began := time.Now()
	random := rand.New(rand.NewPCG(seed, 0))
	clients := make([]*contender, side)
	for i := range clients {
		clients[i] = w.contender(t)
	}
	holder := w.connect(t)
	t.Cleanup(func() { require.NoError(t, holder.Close()) })
	points := []point{{op: "create2", nth: 1}, {op: "getChildren2", nth: 1}, {op: "getData", nth: 1}, {op: "getData", nth: 2}, {op: "delete", nth: 1}}
	var struck [kinds]int
	acquired := 0
	for range *rounds {
		for _, p := range points {
			for k := range kinds {
				for _, c := range clients {
					c.fault = newFault(p, k, random)
				}
				acquired += w.bout(t, holder, clients)
				struck[k] += settleFaults(clients)
			}
		}
	}
	for _, c := range clients {
		same := c.client.Conn().SessionID() == c.session
		require.True(t, same, "a session has changed, so it may have taken znodes along")
		require.NoError(t, c.client.Close())
	}
	require.NoError(t, holder.Close())
	t.Logf("queue: %d clients in one queue, %d points, %d rounds: %d replies lost, %d requests dropped, %d connections killed, "+
		"%d acquisitions, two holders 0, leftovers 0, %v", side, len(points), *rounds, struck[replyLost], struck[requestDropped],
		struck[connectionKilled], acquired, time.Since(began).Round(time.Second))
	for k, n := range struck {
		require.Equal(t, *rounds*len(points)*side, n, "%v: not met by all", kind(k))
	}
}

// settleFaults returns how many contenders have met their fault.
func settleFaults(contenders []*contender) (met int) {
	for _, c := range contenders {
		if c.fault.settle() {
			met++
		}
	}
	return met
}

// contender is a client behind a proxy of its own.
type contender struct {
	client  *recipes.Client
	proxy   *faultproxy.Proxy
	session int64
	fault   *fault
}

func (w *world) contender(t *testing.T) *contender {
	t.Helper()
	proxy := faultproxy.New(t, w.server)
	client, err := recipes.Connect(t.Context(), []string{proxy.Addr()}, recipes.WithSessionTimeout(sessionTimeout))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return &contender{client: client, proxy: proxy, session: client.Conn().SessionID()}
}

// bout is one turn of each contender.
type bout struct {
	world   *world
	dir     string
	holders atomic.Int32
	last    atomic.Int64 // the latest token

	mu       sync.Mutex // protects what is below
	tokens   map[int64]bool
	failures []string
}

// bout plays one, checks the invariants, and returns how many contenders had the lock.
func (w *world) bout(t *testing.T, holder *recipes.Client, contenders []*contender) int {
	t.Helper()
	b := &bout{world: w, dir: w.directory(), tokens: map[int64]bool{}}
	b.play(t, holder, contenders)
	require.Empty(t, b.failures, "%v", contenders[0].fault)
	require.Len(t, b.tokens, len(contenders))
	names, _, err := w.admin.Children(b.dir)
	require.NoError(t, err)
	require.Empty(t, names, "left by %v", contenders[0].fault)
	return len(b.tokens)
}

// play returns after each contender had the lock. The holder releases it when all contenders wait and the faults of
// waiting are over.
func (b *bout) play(t *testing.T, holder *recipes.Client, contenders []*contender) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stuck)
	defer cancel()
	m, err := mutex.New(holder, b.dir)
	require.NoError(t, err)
	held, err := m.Acquire(ctx)
	require.NoError(t, err)
	for _, c := range contenders {
		c.fault.arm(c.proxy, isStep)
	}
	var queue sync.WaitGroup
	for _, c := range contenders {
		queue.Go(func() { // ends with its turn, or with ctx; joined below
			if err := b.turn(ctx, c); err != nil {
				b.fail("%v", err)
			}
		})
	}
	require.Eventually(t, func() bool { return b.allWait(contenders) }, patience, 10*time.Millisecond, "not all of them wait")
	require.NoError(t, held.Release())
	queue.Wait()
	for _, c := range contenders {
		c.fault.settle()
		c.fault.disarm()
	}
}

func (b *bout) allWait(contenders []*contender) bool {
	for _, c := range contenders {
		if c.fault.op != "delete" && !c.fault.met.Load() {
			return false
		}
	}
	names, _, err := b.world.admin.Children(b.dir)
	return err == nil && len(names) == side+1
}

// turn is one contender's.
func (b *bout) turn(ctx context.Context, c *contender) error {
	m, err := mutex.New(c.client, b.dir)
	if err != nil {
		return err
	}
	lease, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	if n := b.holders.Add(1); n != 1 {
		b.fail("%d holders at once", n)
	}
	token := lease.FencingToken()
	if last := b.last.Swap(token); last >= token {
		b.fail("token %d after %d", token, last)
	}
	b.mu.Lock()
	b.tokens[token] = true
	b.mu.Unlock()
	b.holders.Add(-1)
	return lease.Release()
}

func (b *bout) fail(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = append(b.failures, fmt.Sprintf(format, args...))
}
