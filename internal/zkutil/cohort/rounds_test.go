package cohort_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// passCounter counts the passes of a cohort. It is used under the lock, but for count.
type passCounter struct {
	token int64
	count atomic.Int64
}

// grant takes note of a lease inside. The first one of a tenure is no pass.
func (p *passCounter) grant(lease *recipes.Lease) {
	if lease.FencingToken() == p.token {
		p.count.Add(1)
	}
	p.token = lease.FencingToken()
}

// keepBusy has a caller inside acquire and release until ctx ends.
func (p *passCounter) keepBusy(ctx context.Context, m *mutex.InterProcessMutex) error {
	for ctx.Err() == nil {
		if err := m.Do(context.WithoutCancel(ctx), func(_ context.Context, lease *recipes.Lease) error {
			p.grant(lease)
			bubble.Pause(time.Millisecond)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// However busy a cohort is, a contender from elsewhere waits for MaxPasses passes at most.
func TestCohortRounds(t *testing.T) {
	const maxPasses = 7
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Troubled(), mutex.Cohort{MaxPasses: maxPasses, MaxTenure: time.Hour, Linger: time.Millisecond})
		remote := f.Mutex(f.Client())
		ctx, cancel := context.WithCancel(f.Context())
		defer cancel()
		var passes passCounter
		var insiders sync.WaitGroup
		for range 4 {
			insiders.Go(func() { // until ctx ends
				if err := passes.keepBusy(ctx, m); err != nil {
					f.Errorf("inside: %v", err)
				}
			})
		}
		rounds, random := 10_000, rand.New(rand.NewPCG(*schedule.FirstSeed, 0))
		if testkit.IsRaced || testing.Short() {
			rounds = testkit.Shorter(1000, 100)
		}
		most, last := int64(0), int64(0)
		for range rounds {
			// Between two milliseconds, so that no pass falls on the same instant.
			bubble.Pause(time.Duration(random.IntN(20))*time.Millisecond + time.Millisecond/2)
			before := passes.count.Load()
			lease, err := remote.Acquire(f.Context())
			require.NoError(f, err)
			waited := passes.count.Load() - before
			require.LessOrEqual(f, waited, int64(maxPasses))
			most = max(most, waited)
			require.Greater(f, lease.FencingToken(), max(last, passes.token))
			last = lease.FencingToken()
			bubble.Pause(time.Millisecond)
			require.NoError(f, lease.Release())
		}
		require.EqualValues(f, maxPasses, most, "it is busy")
		cancel()
		insiders.Wait()
		f.Logf("%d rounds, %d passes", rounds, passes.count.Load())
	})
}
