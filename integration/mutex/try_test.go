package mutex_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// A try at a held lock fails at once, and its znode is gone when it returns.
func TestTryHeld(t *testing.T) {
	path := lockPath(t)
	holder := newMutex(t, direct(t), path)
	lease := acquire(t, holder)
	for name, m := range map[string]*mutex.InterProcessMutex{"same value": holder, "other client": newMutex(t, direct(t), path)} {
		for range 10 {
			_, err := m.TryAcquire(testContext(t))
			require.ErrorIs(t, err, recipes.ErrNotAcquired, name)
			var failed *recipes.OpError
			require.ErrorAs(t, err, &failed, name)
			require.Equal(t, &recipes.OpError{Op: "mutex: try acquire", Path: path, Err: recipes.ErrNotAcquired}, failed, name)
			require.Len(t, children(t, path), 1, name)
		}
	}
	require.NoError(t, lease.Release())
	free, err := holder.TryAcquire(testContext(t))
	require.NoError(t, err)
	require.Greater(t, free.FencingToken(), lease.FencingToken())
	require.NoError(t, free.Release())
	require.Empty(t, children(t, path))
}

// A try does not overtake those who wait.
func TestTryBehindAWaiter(t *testing.T) {
	path := lockPath(t)
	m := newMutex(t, direct(t), path)
	first := acquire(t, m)
	waiter := waiting(t, testContext(t), m, path, 2)
	require.NoError(t, first.Release())
	_, err := newMutex(t, direct(t), path).TryAcquire(testContext(t))
	require.ErrorIs(t, err, recipes.ErrNotAcquired)
	lease, err := outcome(t, waiter)
	require.NoError(t, err)
	require.NoError(t, lease.Release())
	require.Empty(t, children(t, path))
}

// A try whose context is over does not try.
func TestTryWithAnEndedContext(t *testing.T) {
	client, proxy := proxied(t)
	path := lockPath(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errOfTest)
	proxy.ResetCounts()
	_, err := newMutex(t, client, path).TryAcquire(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errOfTest)
	require.Empty(t, requests(proxy))
}

// However many try at once, one at most gets in, and nothing is left in the end.
func TestTryStorm(t *testing.T) {
	path := lockPath(t)
	values := []*mutex.InterProcessMutex{newMutex(t, direct(t), path), newMutex(t, direct(t), path)}
	conn := observer(t)
	var inside, wins atomic.Int32
	errs := make(chan error, 32)
	var goroutines sync.WaitGroup
	for i := range cap(errs) {
		goroutines.Go(func() {
			errs <- func() error {
				for range 20 {
					lease, err := values[i%len(values)].TryAcquire(t.Context())
					if errors.Is(err, recipes.ErrNotAcquired) {
						continue
					}
					if err != nil {
						return err
					}
					wins.Add(1)
					if inside.Add(1) != 1 {
						return errors.New("two holders")
					}
					_, _, err = conn.Children(path) // takes a while
					inside.Add(-1)
					if err := errors.Join(err, lease.Release()); err != nil {
						return err
					}
				}
				return nil
			}()
		})
	}
	goroutines.Wait()
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	require.Positive(t, wins.Load())
	require.Empty(t, children(t, path))
	t.Logf("%d of %d tries got the lock", wins.Load(), 20*cap(errs))
}
