package mutex_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// TestCutWhileWaiting requires that a disconnected waiter keeps its place: the same znode is granted, ahead of a
// later one.
func TestCutWhileWaiting(t *testing.T) {
	for name, fault := range map[string]func(*testing.T, *recipes.Client, *faultproxy.Proxy){
		"once": cutAndReconnect,
		"five times": func(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy) {
			t.Helper()
			for range 5 {
				cutAndReconnect(t, client, proxy)
			}
		},
		"outage": func(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy) {
			t.Helper()
			outage(t, client, proxy)()
			reached(t, client, recipes.Connected)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := testkit.Path(t)
			holder := acquire(t, newMutex(t, direct(t), path))
			client, proxy := proxiedFor(t, calm)
			first := waiting(t, testkit.Context(t), newMutex(t, client, path), path, 2)
			place := queue(t, path)[1]
			token := created(t, place)
			second := waiting(t, testkit.Context(t), newMutex(t, direct(t), path), path, 3)

			fault(t, client, proxy)
			require.Equal(t, token, created(t, place), "the place is kept")
			notGranted(t, first, "the first waiter")

			require.NoError(t, holder.Release())
			lease := granted(t, first)
			require.Equal(t, place, lease.Path())
			require.Equal(t, token, lease.FencingToken())
			notGranted(t, second, "the second waiter")
			require.NoError(t, lease.Release())
			require.NoError(t, granted(t, second).Release())
			require.Empty(t, children(t, path))
		})
	}
}

// TestReleaseDuringOutageOfWaiter releases the lock while the waiter is disconnected.
func TestReleaseDuringOutageOfWaiter(t *testing.T) {
	for name, away := range map[string]func(*testing.T, *recipes.Client, *faultproxy.Proxy) func(){
		"cut": outage,
		"silent": func(_ *testing.T, _ *recipes.Client, proxy *faultproxy.Proxy) func() {
			proxy.Hold()
			return proxy.Release
		},
		"answers held": func(_ *testing.T, _ *recipes.Client, proxy *faultproxy.Proxy) func() {
			proxy.HoldDown()
			return proxy.Release
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := testkit.Path(t)
			holder := acquire(t, newMutex(t, direct(t), path))
			client, proxy := proxiedFor(t, calm)
			done := waiting(t, testkit.Context(t), newMutex(t, client, path), path, 2)
			place := queue(t, path)[1]
			over := away(t, client, proxy)
			require.NoError(t, holder.Release())
			notGranted(t, done, "the waiter, while it is away")
			over()
			lease := granted(t, done)
			require.Equal(t, place, lease.Path())
			require.NoError(t, lease.Release())
		})
	}
}

// TestSessionExpiredWhileWaiting requires a new place at the tail.
func TestSessionExpiredWhileWaiting(t *testing.T) {
	path := testkit.Path(t)
	holder := acquire(t, newMutex(t, direct(t), path))
	client := direct(t)
	first := waiting(t, testkit.Context(t), newMutex(t, client, path), path, 2)
	old := queue(t, path)[1]
	second := waiting(t, testkit.Context(t), newMutex(t, direct(t), path), path, 3)
	behind := queue(t, path)[2]

	expire(t, client)
	testkit.Eventually(t, func() bool { return len(children(t, path)) == 3 }, "the new place")
	places := queue(t, path)
	require.Equal(t, []string{holder.Path(), behind}, places[:2])
	require.NotEqual(t, old, places[2])

	require.NoError(t, holder.Release())
	next := granted(t, second)
	require.Equal(t, behind, next.Path())
	notGranted(t, first, "the one with the new place")
	require.NoError(t, next.Release())
	last := granted(t, first)
	require.Equal(t, places[2], last.Path())
	require.Greater(t, last.FencingToken(), next.FencingToken())
	require.NoError(t, last.Release())
	require.Empty(t, children(t, path))
}

// TestContextBoundsRejoin requires that the caller's context also bounds the wait in the new session, and that
// nothing is left behind.
func TestContextBoundsRejoin(t *testing.T) {
	t.Run("cancelled", func(t *testing.T) {
		path := testkit.Path(t)
		holder := acquire(t, newMutex(t, direct(t), path))
		client := direct(t)
		ctx, cancel := context.WithCancel(testkit.Context(t))
		done := waiting(t, ctx, newMutex(t, client, path), path, 2)
		expire(t, client)
		testkit.Eventually(t, func() bool { return len(children(t, path)) == 2 }, "the new place")
		cancel()
		_, err := outcome(t, done)
		require.ErrorIs(t, err, context.Canceled)
		testkit.Eventually(t, func() bool { return len(children(t, path)) == 1 }, "the znode is gone")
		stands(t, holder)
	})
	t.Run("deadline", func(t *testing.T) {
		const limit = 4 * time.Second
		path := testkit.Path(t)
		acquire(t, newMutex(t, direct(t), path))
		client := direct(t)
		ctx, cancel := context.WithTimeout(testkit.Context(t), limit)
		defer cancel()
		done := waiting(t, ctx, newMutex(t, client, path), path, 2)
		expire(t, client)
		_, err := outcome(t, done)
		deadline, _ := ctx.Deadline()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.WithinDuration(t, deadline, time.Now(), atOnce)
		testkit.Eventually(t, func() bool { return len(children(t, path)) == 1 }, "the znode is gone")
	})
	t.Run("deadline without a server", func(t *testing.T) {
		const limit = 2 * time.Second
		path := testkit.Path(t)
		acquire(t, newMutex(t, direct(t), path))
		client, proxy := proxied(t)
		ctx, cancel := context.WithTimeout(testkit.Context(t), limit)
		defer cancel()
		done := waiting(t, ctx, newMutex(t, client, path), path, 2)
		over := outage(t, client, proxy)
		expire(t, client)
		_, err := outcome(t, done)
		deadline, _ := ctx.Deadline()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.WithinDuration(t, deadline, time.Now(), atOnce)
		over()
		reached(t, client, recipes.Connected)
		testkit.Eventually(t, func() bool { return len(children(t, path)) == 1 }, "the znode is gone")
	})
}

// TestOwnNodeDeletedWhileWaiting is bug B3 of zk.Lock: a waiter whose znode was deleted must not mistake the next
// release for its own turn.
func TestOwnNodeDeletedWhileWaiting(t *testing.T) {
	path := testkit.Path(t)
	holder := acquire(t, newMutex(t, direct(t), path))
	first := waiting(t, testkit.Context(t), newMutex(t, direct(t), path), path, 2)
	second := waiting(t, testkit.Context(t), newMutex(t, direct(t), path), path, 3)
	places := queue(t, path)

	deleteNode(t, places[1])
	testkit.Eventually(t, func() bool { return len(children(t, path)) == 3 }, "the new place")
	now := queue(t, path)
	require.Equal(t, []string{places[0], places[2]}, now[:2])
	stands(t, holder)
	notGranted(t, first, "the one whose znode was deleted")
	notGranted(t, second, "the one behind it")

	require.NoError(t, holder.Release())
	next := granted(t, second)
	notGranted(t, first, "the one whose znode was deleted")
	require.NoError(t, next.Release())
	last := granted(t, first)
	require.Equal(t, now[2], last.Path())
	require.NoError(t, last.Release())
	require.Empty(t, children(t, path))
}

// TestOwnNodeDeletedWhileThePredecessorLeaves races the deletion of a waiter's znode with the awaited release.
func TestOwnNodeDeletedWhileThePredecessorLeaves(t *testing.T) {
	const rounds, waiters = 25, 3
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	path := testkit.Path(t)
	holders := newMutex(t, direct(t), path)
	contender := newMutex(t, direct(t), path)
	for range rounds {
		var section judge.Section
		holder := acquire(t, holders)
		finished := make(chan error, waiters)
		for range waiters {
			go func() {
				lease, err := contender.Acquire(testkit.Context(t))
				if err != nil {
					finished <- err
					return
				}
				section.Enter(lease.FencingToken())
				section.Leave()
				finished <- lease.Release()
			}()
		}
		testkit.Eventually(t, func() bool { return len(children(t, path)) == waiters+1 }, "the waiters")
		victim := queue(t, path)[1+random.IntN(waiters)]
		// One transaction, so no client can learn of one deletion before the other happened.
		operations := []any{&zk.DeleteRequest{Path: victim, Version: -1}}
		together := random.IntN(2) == 0
		if together {
			operations = append(operations, &zk.DeleteRequest{Path: holder.Path(), Version: -1})
		}
		_, err := observer(t).Multi(operations...)
		require.NoError(t, err)
		if together {
			require.ErrorIs(t, ended(t, holder), recipes.ErrNodeDeleted)
			require.ErrorIs(t, holder.Release(), recipes.ErrNodeDeleted)
		} else {
			require.NoError(t, holder.Release())
		}
		for range waiters {
			select {
			case err := <-finished:
				require.NoError(t, err)
			case <-testkit.Context(t).Done():
				require.Fail(t, "a waiter has never got the lock")
			}
		}
		require.NoError(t, section.Err())
	}
	require.Empty(t, children(t, path))
}
