package interop_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// insiders are the goroutines of a busy cohort.
type insiders struct {
	passes  atomic.Int64
	token   int64 // of the latest lease; used under the lock alone
	inside  int   // used under the lock alone
	overlap atomic.Bool
}

// hold is the work of each holder.
func (in *insiders) hold(_ context.Context, lease *recipes.Lease) error {
	if in.inside++; in.inside != 1 || lease.FencingToken() < in.token {
		in.overlap.Store(true)
	}
	if lease.FencingToken() == in.token {
		in.passes.Add(1)
	}
	in.token = lease.FencingToken()
	time.Sleep(60 * time.Millisecond) //nolint:forbidigo // the work: long beside what an event takes
	in.inside--
	return nil
}

// TestCohortLetsOthersIn has contenders of every language, who know nothing of cohorts, wait for a busy one.
func TestCohortLetsOthersIn(t *testing.T) {
	t.Parallel()
	// The cohort learns of a contender by an event. On a busy machine some passes begin before that.
	const maxPasses, unheard = 10, 10
	for _, other := range languages {
		t.Run(other.name, func(t *testing.T) {
			t.Parallel()
			path := plainPath(t)
			m, err := mutex.New(connect(t, options{}), path, mutex.WithCohort(mutex.Cohort{MaxPasses: maxPasses, MaxTenure: time.Hour}))
			require.NoError(t, err)
			var in insiders
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() { // until ctx ends; joined below
					for ctx.Err() == nil {
						if err := m.Do(context.WithoutCancel(ctx), in.hold); err != nil {
							t.Errorf("inside: %v", err)
						}
					}
				})
			}
			testkit.Eventually(t, func() bool { return in.passes.Load() > maxPasses }, "passes without bounds while nobody else waits")
			session := other.open(t, options{})
			for range 5 {
				outsider := session.contender(t, path, "outsider")
				before := in.passes.Load()
				wait := start(outsider)
				testkit.Eventually(t, func() bool { before = in.passes.Load(); return len(queue(t, path)) == 2 }, "its znode")
				wait.granted(t, other.name)
				require.LessOrEqual(t, in.passes.Load()-before, int64(maxPasses+unheard))
				held := in.passes.Load()
				time.Sleep(50 * time.Millisecond) //nolint:forbidigo // for a pass that must not happen
				require.Equal(t, held, in.passes.Load())
				require.NoError(t, outsider.unlock())
			}
			cancel()
			group.Wait()
			require.False(t, in.overlap.Load())
			require.Empty(t, queue(t, path))
		})
	}
}
