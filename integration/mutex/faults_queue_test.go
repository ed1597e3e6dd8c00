package mutex_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// TestMiddleWaiterLeaves requires that the next waiter then waits for the predecessor.
func TestMiddleWaiterLeaves(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, cancel context.CancelFunc, client *recipes.Client){
		"cancelled": func(_ *testing.T, cancel context.CancelFunc, _ *recipes.Client) { cancel() },
		"closed": func(t *testing.T, _ context.CancelFunc, client *recipes.Client) {
			t.Helper()
			require.NoError(t, client.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := testkit.Path(t)
			holder := acquire(t, newMutex(t, direct(t), path))
			middle := direct(t)
			first := waiting(t, testkit.Context(t), newMutex(t, direct(t), path), path, 2)
			ctx, cancel := context.WithCancel(testkit.Context(t))
			defer cancel()
			leaver := waiting(t, ctx, newMutex(t, middle, path), path, 3)
			last := waiting(t, testkit.Context(t), newMutex(t, direct(t), path), path, 4)

			leave(t, cancel, middle)
			_, err := outcome(t, leaver)
			require.Error(t, err)
			testkit.Eventually(t, func() bool { return len(children(t, path)) == 3 }, "the leaver's znode is gone")
			settled(t, path, 3)
			notGranted(t, first, "the first waiter")
			notGranted(t, last, "the last waiter")
			stands(t, holder)

			require.NoError(t, holder.Release())
			lease := granted(t, first)
			settled(t, path, 2)
			notGranted(t, last, "the last waiter")
			require.NoError(t, lease.Release())
			require.NoError(t, granted(t, last).Release())
			require.Empty(t, children(t, path))
		})
	}
}

// TestFirstWaiterLeaves deletes the znode between the holder, which still holds, and the next waiter.
func TestFirstWaiterLeaves(t *testing.T) {
	path := testkit.Path(t)
	holder := acquire(t, newMutex(t, direct(t), path))
	ctx, cancel := context.WithTimeout(testkit.Context(t), 5*time.Second) // in which both have to be in the queue
	defer cancel()
	leaver := waiting(t, ctx, newMutex(t, direct(t), path), path, 2)
	last := waiting(t, testkit.Context(t), newMutex(t, direct(t), path), path, 3)
	_, err := outcome(t, leaver)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	settled(t, path, 2)
	notGranted(t, last, "the waiter behind")
	stands(t, holder)
	require.NoError(t, holder.Release())
	require.NoError(t, granted(t, last).Release())
}

// settled waits until the queue has n znodes and no pending action of a waiter: the observer's own watch on the
// parent stays quiet for a while.
func settled(t *testing.T, path string, n int) {
	t.Helper()
	testkit.Eventually(t, func() bool { return len(children(t, path)) == n }, "the queue's length")
	require.Never(t, func() bool { return len(children(t, path)) != n }, 300*time.Millisecond, 20*time.Millisecond, "the queue has changed")
}

// TestParentWiped deletes the whole directory in one transaction. All contenders queue again in a new one, and one at
// a time holds the lock.
func TestParentWiped(t *testing.T) {
	const waiters = 4
	path := testkit.Path(t) + "/deep"
	holder := acquire(t, newMutex(t, direct(t), path))
	m := newMutex(t, direct(t), path)
	var section judge.Section
	finished := make(chan error, waiters)
	for range waiters {
		go func() {
			lease, err := m.Acquire(testkit.Context(t))
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
	var wipe []any
	for _, child := range queue(t, path) {
		wipe = append(wipe, &zk.DeleteRequest{Path: child, Version: -1})
	}
	wipe = append(wipe, &zk.DeleteRequest{Path: path, Version: -1})
	_, err := observer(t).Multi(wipe...)
	require.NoError(t, err)

	require.ErrorIs(t, ended(t, holder), recipes.ErrNodeDeleted)
	for range waiters {
		select {
		case err := <-finished:
			require.NoError(t, err)
		case <-testkit.Context(t).Done():
			require.Fail(t, "a waiter has never got the lock")
		}
	}
	require.NoError(t, section.Err())
	require.Empty(t, children(t, path))
	require.ErrorIs(t, holder.Release(), recipes.ErrNodeDeleted)
}
