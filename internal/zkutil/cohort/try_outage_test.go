package cohort_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// The only process that ever asks for a lock is not refused it by its own lingering znode: whether the lingering ends before, during
// or after the outage, and however long the outage lasts. A failure of the connection is a failure, not another holder.
func TestCohortTryInAnOutage(t *testing.T) {
	const operation = 4 * time.Second
	for _, linger := range []time.Duration{time.Second, 9 * time.Second, time.Hour} {
		for _, outage := range []time.Duration{time.Second, operation - time.Millisecond, operation + time.Millisecond, 15 * time.Second, 50 * time.Second} {
			locks.Run(t, func(f *locks.Fixture) {
				name := fmt.Sprintf("linger %v, outage %v", linger, outage)
				client := f.Troubled(recipes.WithSessionTimeout(time.Minute), recipes.WithOperationTimeout(operation))
				m := cohortOf(f, client, mutex.Cohort{MaxTenure: 2 * time.Second, Linger: linger})
				require.NoError(f, bubble.Acquire(f.T, m.Acquire).Release())
				over := f.Outage()
				bubble.Pass(3 * time.Second) // longer than the bounds allow
				got := bubble.Start(f.Context(), m.TryAcquire)
				bubble.Pass(outage)
				over()
				result := bubble.Receive(f, got)
				if result.Err == nil {
					require.NoError(f, result.Lease.Release(), name)
				} else {
					require.NotErrorIs(f, result.Err, recipes.ErrNotAcquired, name)
				}
				lease, err := m.TryAcquire(f.Context())
				require.NoError(f, err, name)
				require.NoError(f, lease.Release(), name)
			})
		}
	}
}

// The client is closed while the callers of a cohort give up. No try waits for the cohort's znode.
func TestCohortTryDuringClose(t *testing.T) {
	for delay := range 6 {
		locks.Run(t, func(f *locks.Fixture) {
			held := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
			client := f.Troubled()
			m := cohortOf(f, client, mutex.Cohort{Linger: time.Second})
			ctx, cancel := context.WithCancel(f.Context())
			waiting := f.Waiting(ctx, m)
			f.Outage()
			cancel()
			require.ErrorIs(f, bubble.Receive(f, waiting).Err, context.Canceled)
			tried := bubble.Start(f.Context(), m.TryAcquire)
			bubble.Pause(time.Duration(delay) * time.Millisecond)
			require.NoError(f, client.Close())
			require.ErrorIs(f, bubble.Receive(f, tried).Err, recipes.ErrClosed)
			require.NoError(f, held.Release())
		})
	}
}
