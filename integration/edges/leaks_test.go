package edges_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// settled waits until the process has no more goroutines and sockets than before, and returns its footprint.
func settled(t *testing.T, before footprint) footprint {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		now := weigh(t)
		if now.goroutines <= before.goroutines && now.sockets <= before.sockets {
			return now
		}
		if time.Now().After(deadline) {
			t.Log(stacks())
			require.Failf(t, "something is left over", "%+v before, %+v now", before, now)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// Attempts that time out behind a held lock leave no goroutine, and less than 64 bytes of heap each.
func TestTimedOutAttempts(t *testing.T) {
	server := alone(t)
	if server == "" {
		return
	}
	const attempts, batch, atATime = 10_000, 500, 50
	path := testkit.Path(t)
	conn := stranger(t, server)
	holder := acquire(t, newMutex(t, connect(t, server), path))
	client := connect(t, server)
	several := func() { // then waits for the server, which may be slower than the attempts
		var workers sync.WaitGroup
		for range atATime {
			workers.Go(func() { // ends with its attempts; joined below
				for range batch / atATime {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(20+rand.IntN(60))*time.Millisecond)
					if _, err := newMutex(t, client, path).Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("behind the holder: %v", err)
					}
					cancel()
				}
			})
		}
		workers.Wait()
		testkit.Eventually(t, func() bool { children, _, err := conn.Children(path); return err == nil && len(children) == 1 }, "ghosts")
	}
	several() // buffers and goroutines of the first use
	several()
	before := weigh(t)
	began := time.Now()
	for range attempts / batch {
		several()
	}
	after := settled(t, before)
	t.Logf("%d attempts in %v: heap %+d bytes, %.1f an attempt; %d goroutines before, %d after",
		attempts, time.Since(began).Round(time.Second), after.heap-before.heap, float64(after.heap-before.heap)/attempts, before.goroutines, after.goroutines)
	require.Less(t, after.heap-before.heap, 64*attempts)
	require.LessOrEqual(t, watches(t, server, path), 2, "the holder's watch, and one for all attempts")
	require.NoError(t, holder.Release())
}

// A client whose session expires 200 times, while it holds, waits and stands for
// election, has then no more sockets, goroutines and watches than in the beginning.
func TestExpiriesLeaveNothing(t *testing.T) {
	server := alone(t)
	if server == "" {
		return
	}
	const expiries = 200
	w := newSurvivor(t, server)
	for range 5 {
		w.expire()
	}
	before, watched := settled(t, weigh(t)), watches(t, server, w.root)
	began := time.Now()
	for range expiries {
		w.expire()
	}
	after := settled(t, before)
	t.Logf("%d expiries in %v: heap %+d bytes; before %d goroutines, %d sockets, %d server watches, after %d, %d, %d",
		expiries, time.Since(began).Round(time.Second), after.heap-before.heap,
		before.goroutines, before.sockets, watched, after.goroutines, after.sockets, watches(t, server, w.root))
	require.LessOrEqual(t, after.sockets, before.sockets)
	require.LessOrEqual(t, after.goroutines, before.goroutines)
	require.LessOrEqual(t, watches(t, server, w.root), watched)
	require.Less(t, after.heap-before.heap, 64<<10)
}

// survivor is a client that does everything at once.
type survivor struct {
	t      *testing.T
	server string
	root   string
	conn   *zk.Conn // of another client
	client *recipes.Client
	lease  *recipes.Lease
	latch  *latch.LeaderLatch
	leads  *selector.LeaderSelector
}

func newSurvivor(t *testing.T, server string) *survivor {
	t.Helper()
	w := &survivor{t: t, server: server, root: testkit.Path(t), conn: stranger(t, server), client: connect(t, server, brisk())}
	const calm = 40 * time.Second // the blocker's lease outlives a machine that stands still for many seconds
	blocker := acquire(t, newMutex(t, connect(t, server, recipes.WithSessionTimeout(calm)), w.root+"/held"))
	ctx, cancel := context.WithCancel(t.Context())
	waiter := acquiring(ctx, newMutex(t, w.client, w.root+"/held"))
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, (<-waiter).err, context.Canceled)
		require.NoError(t, blocker.Release())
	})
	var err error
	w.latch, err = latch.New(w.client, w.root+"/latch")
	require.NoError(t, err)
	require.NoError(t, w.latch.Start())
	t.Cleanup(func() { require.NoError(t, w.latch.Close()) })
	w.leads, err = selector.New(w.client, w.root+"/selector", func(ctx context.Context, _ *recipes.Lease) error {
		<-ctx.Done()
		return nil
	}, selector.WithAutoRequeue())
	require.NoError(t, err)
	require.NoError(t, w.leads.Start())
	t.Cleanup(func() { require.NoError(t, w.leads.Close()) })
	w.recover()
	return w
}

// expire ends the session, and waits for the same state in a new one.
func (w *survivor) expire() {
	w.t.Helper()
	id := w.client.Conn().SessionID()
	require.NoError(w.t, zkadmin.Expire(w.t.Context(), w.server, id))
	if loss := ended(w.t, w.lease); !errors.Is(loss, recipes.ErrNodeDeleted) { // the client may be back before its znodes go
		require.ErrorIs(w.t, loss, recipes.ErrSessionLost)
	}
	testkit.Eventually(w.t, func() bool { return w.client.Conn().SessionID() != id }, "a new session")
	w.recover()
}

// recover waits until the client holds, waits and leads again.
func (w *survivor) recover() {
	w.t.Helper()
	w.lease = acquire(w.t, newMutex(w.t, w.client, w.root+"/lock"))
	testkit.Eventually(w.t, func() bool {
		queue, _, err := w.conn.Children(w.root + "/held")
		return err == nil && len(queue) == 2 && w.latch.HasLeadership() && w.leads.HasLeadership() && watches(w.t, w.server, w.root) == 6
	}, "as it was: four znodes of its own, and the blocker's, are watched")
}
