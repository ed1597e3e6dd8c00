package mutex_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// handoff is the cost of one release, averaged over the drain of a queue.
type handoff struct{ requests, events, bytes float64 }

// One release wakes one waiter. A handoff costs the server the same with 8 and with 256 waiters.
func TestNoHerd(t *testing.T) {
	few, many := drain(t, 8), drain(t, 256)
	for _, cost := range []handoff{few, many} {
		require.LessOrEqual(t, cost.requests, 2.0, "at most a delete and a listing")
		require.LessOrEqual(t, cost.events, 2.0, "one to the next holder, one to the last")
	}
	require.InDelta(t, few.requests, many.requests, 0.2)
	require.InDelta(t, few.events, many.events, 0.2)
}

// drain lets a queue of waiters on 8 sessions run empty.
func drain(t *testing.T, waiters int) handoff {
	t.Helper()
	path := testkit.Path(t)
	proxy := faultproxy.New(t, ensemble.Shared(t).Server(0))
	values := make([]*mutex.InterProcessMutex, 8)
	for i := range values {
		values[i] = newMutex(t, testclient.Dial(t, []string{proxy.Addr()}, recipes.WithSessionTimeout(longSession)), path)
	}
	proxy.ResetCounts()
	began := time.Now()
	holder := acquire(t, values[0])
	queue := make([]<-chan result, waiters)
	for i := range queue { // the predecessor is always in another session
		queue[i] = waiting(t, t.Context(), values[(i+1)%len(values)], path, i+2)
	}
	// Each session reads the holder once a second at most, for its waiters that waited for a second.
	holderReads := func() int { return len(values) * int(time.Since(began)/time.Second+1) }
	all := 2*waiters + 1 // the holder watches its own znode, each waiter its own and the one ahead
	testkit.Eventually(t, func() bool {
		n := 0
		for _, watches := range serverWatches(t, path) {
			n += watches
		}
		return n == all
	}, "each watches its own znode and the one ahead")
	require.LessOrEqual(t, requests(proxy)["getData"], all+holderReads(), "and reads no more than these")

	proxy.ResetCounts()
	for _, next := range queue {
		require.NoError(t, holder.Release())
		lease, err := outcome(t, next)
		require.NoError(t, err)
		holder = lease
	}
	counts := proxy.Counts()
	readHolder := counts.Requests["getData"] // behind a list of its own
	require.LessOrEqual(t, readHolder, holderReads(), "nobody looks at another one's znode again")
	require.NoError(t, holder.Release())
	n := float64(waiters)
	cost := handoff{float64(counts.Total()-counts.Requests["multi"]-2*readHolder) / n, float64(counts.Events) / n, float64(counts.BytesUp+counts.BytesDown) / n}
	t.Logf("%3d waiters: %.2f requests, %.2f watch events, %.0f bytes a handoff (%v)", waiters, cost.requests, cost.events, cost.bytes, counts.Requests)
	return cost
}

// A waiter watches its own znode and the one ahead, but neither the directory nor the holder.
func TestWatchesOfWaiters(t *testing.T) {
	path := testkit.Path(t)
	values := []*mutex.InterProcessMutex{newMutex(t, direct(t), path), newMutex(t, direct(t), path), newMutex(t, direct(t), path)}
	holder := acquire(t, values[0])
	first := waiting(t, t.Context(), values[1], path, 2)
	last := waiting(t, t.Context(), values[2], path, 3)
	participants, err := values[0].Participants(testkit.Context(t))
	require.NoError(t, err)
	want := map[string]int{
		participants[0].Path: 2, // of its owner and of the first waiter
		participants[1].Path: 2,
		participants[2].Path: 1,
	}
	testkit.Eventually(t, func() bool { return maps.Equal(want, serverWatches(t, path)) }, "the watches")
	for _, next := range []<-chan result{first, last} {
		require.NoError(t, holder.Release())
		holder, err = outcome(t, next)
		require.NoError(t, err)
	}
	require.NoError(t, holder.Release())
	require.Empty(t, serverWatches(t, path))
}
