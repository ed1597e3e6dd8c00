//go:build !race

package election_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// TestSpeedOfALongWait measures the time from a Release to the grant of the next contender. One just arrived, so that its
// create proves its session, and one waited for so long that it has to prove the session at its grant. Three quarters of the
// session timeout have the same effect as an hour.
func TestSpeedOfALongWait(t *testing.T) {
	const pairs, timeout = 10, 12 * time.Second
	e := ensemble.New(t, ensemble.Config{Nodes: 3, Private: true})
	locks := make([][2]*mutex.InterProcessMutex, pairs)
	for i := range locks {
		for j := range locks[i] {
			client := testclient.Dial(t, e.Servers(), recipes.WithSessionTimeout(timeout))
			m, err := mutex.New(client, fmt.Sprintf("/long-wait/%d", i))
			require.NoError(t, err)
			locks[i][j] = m
		}
	}
	justNow, long := &side{name: "came just now"}, &side{name: "has waited for long"}
	for range 3 {
		long.times = append(long.times, handovers(t, locks, timeout*3/4)...)
		justNow.times = append(justNow.times, handovers(t, locks, 50*time.Millisecond)...)
	}
	t.Log(justNow)
	t.Log(long)
	t.Logf("%d handovers each, ratio of the medians %.2f", len(long.times), float64(long.median())/float64(justNow.median()))
}

// handovers makes one of each pair hold its lock while the other one waits for a time, and returns the duration of each
// handover.
func handovers(t *testing.T, locks [][2]*mutex.InterProcessMutex, wait time.Duration) (times []time.Duration) {
	t.Helper()
	ctx := testkit.Context(t)
	held := make([]*recipes.Lease, len(locks))
	turns := make([]chan *recipes.Lease, len(locks))
	begin := func(i int) {
		lease, err := locks[i][0].Acquire(ctx)
		require.NoError(t, err)
		held[i], turns[i] = lease, make(chan *recipes.Lease, 1)
		go func() { // ends with the grant, or with ctx
			lease, err := locks[i][1].Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			turns[i] <- lease
		}()
	}
	isShort := wait < time.Second
	for i := range locks {
		if !isShort {
			begin(i)
		}
	}
	if !isShort {
		time.Sleep(wait) //nolint:forbidigo // the subject is the state after this time
	}
	for i := range locks {
		if isShort {
			begin(i)
			time.Sleep(wait) //nolint:forbidigo // as above
		}
		start := time.Now()
		require.NoError(t, held[i].Release())
		lease := testkit.Receive(t, turns[i], "the grant")
		times = append(times, time.Since(start))
		require.NoError(t, lease.Release())
	}
	return times
}
