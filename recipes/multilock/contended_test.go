package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

const (
	slowCommit = 10 * time.Millisecond
	basketSize = 5
	crowd      = 64 // contenders
)

// contention is a crowd of contenders on eight clients. Each acquires and releases baskets of random items. A commit takes slowCommit, and
// nothing else takes time.
type contention struct {
	items    int
	pause    time.Duration // before each basket, on average
	lasts    time.Duration
	seed     uint64
	oneByOne bool // the locks of a basket are acquired one after the other, and still released together
}

// single hides a mutex from a multilock, which therefore acquires its locks one after the other.
type single struct{ *mutex.InterProcessMutex }

// turnover is what a crowd reaches.
type turnover struct {
	rate            float64 // baskets per second of virtual time
	commits, reads  float64 // per basket
	median, longest time.Duration
}

func (n turnover) String() string {
	return fmt.Sprintf("%6.1f baskets/s, %.2f commits, %5.2f reads, median %5v, longest %5v",
		n.rate, n.commits, n.reads, n.median.Round(time.Millisecond), n.longest.Round(time.Millisecond))
}

func (c contention) run(t *testing.T) (reached turnover) {
	t.Helper()
	bubble.Run(t, func(b *bubble.Bubble) {
		items := make([]string, c.items)
		for i := range items {
			items[i] = fmt.Sprintf("/items/%04d", i)
			b.Srv.Put(items[i], nil)
		}
		clients := make([]*recipes.Client, 8)
		for i := range clients {
			clients[i] = b.Client(recipes.WithSessionTimeout(time.Hour)) // no heartbeat is due
		}
		b.Srv.SlowCommits(slowCommit)
		log, ctx := b.Srv.Observe(), b.Context()
		waits, errs, all := make([][]time.Duration, crowd), make([]error, crowd), sync.WaitGroup{}
		for i := range crowd {
			all.Go(func() { waits[i], errs[i] = c.contend(ctx, clients[i%len(clients)], items, uint64(i)) })
		}
		all.Wait()
		log.Stop()
		require.NoError(b, errors.Join(errs...))
		sorted := slices.Sorted(slices.Values(slices.Concat(waits...)))
		n, commits := float64(len(sorted)), log.Count(append(creates, zktest.OpDelete, zktest.OpMulti)...)
		reached = turnover{
			n / c.lasts.Seconds(), float64(commits) / n, float64(log.Count()-commits) / n, sorted[len(sorted)/2], sorted[len(sorted)-1],
		}
	})
	return reached
}

// contend is one contender. waits are the times of its acquisitions.
func (c contention) contend(ctx context.Context, client *recipes.Client, items []string, number uint64) (waits []time.Duration, err error) {
	random, endAt := rand.New(rand.NewPCG(c.seed, number)), time.Now().Add(c.lasts) //nolint:gosec // a test, with a seed
	for time.Now().Before(endAt) {
		bubble.Pause(c.pause/2 + time.Duration(random.Float64()*float64(c.pause)))
		chosen := random.Perm(len(items))[:basketSize]
		slices.Sort(chosen)
		locks := make([]multilock.Locker, basketSize)
		for i, item := range chosen {
			lock, err := mutex.New(client, items[item])
			if err != nil {
				return nil, err
			}
			if locks[i] = lock; c.oneByOne {
				locks[i] = single{lock}
			}
		}
		all, err := multilock.New(locks...)
		if err != nil {
			return nil, err
		}
		startedAt := time.Now()
		lease, err := all.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		waits = append(waits, time.Since(startedAt))
		if err := lease.Release(); err != nil {
			return nil, err
		}
	}
	return waits, nil
}

// Under contention, too, locks that are acquired together take fewer commits and less time than locks that are acquired one after the other. The
// bounds leave room for the order of goroutines at one instant. With -exhaustive, each crowd contends for a minute, with four seeds.
func TestContendedBaskets(t *testing.T) {
	for _, c := range []struct {
		contention

		rate            float64 // at least, as a multiple of that of one by one
		median, longest float64 // at most, as multiples
		commits         float64 // at most
	}{
		{contention{items: 1000, lasts: time.Second}, 1.4, 0.8, 2.5, 3.6},
		{contention{items: 100, lasts: 4 * time.Second}, 1.05, 1.1, 1.5, 5.3},
		{contention{items: 20, lasts: 10 * time.Second}, 1.2, 1, 1.1, 5.7},
		{contention{items: 6, lasts: 10 * time.Second}, 1.25, 0.8, 0.9, 5.2},
		{contention{items: 1000, lasts: 2 * time.Second, pause: 200 * time.Millisecond}, 1.1, 0.35, 1.1, 2.2},
	} {
		seeds := uint64(1)
		if c.lasts = testkit.Shorter(c.lasts, c.lasts/2); *testkit.Exhaustive {
			seeds, c.lasts = 4, time.Minute
		}
		for c.seed = range seeds {
			t.Run(fmt.Sprintf("%d items/pause %v/%d", c.items, c.pause, c.seed), func(t *testing.T) {
				inSequence := c.contention
				inSequence.oneByOne = true
				together, oneByOne := c.run(t), inSequence.run(t)
				t.Logf("together:   %v", together)
				t.Logf("one by one: %v", oneByOne)
				t.Logf("rate %.2f, median %.2f, longest %.2f", together.rate/oneByOne.rate,
					float64(together.median)/float64(oneByOne.median), float64(together.longest)/float64(oneByOne.longest))
				require.GreaterOrEqual(t, together.rate, c.rate*oneByOne.rate)
				require.LessOrEqual(t, float64(together.median), c.median*float64(oneByOne.median))
				require.LessOrEqual(t, float64(together.longest), c.longest*float64(oneByOne.longest))
				require.LessOrEqual(t, together.commits, c.commits)
			})
		}
	}
}
