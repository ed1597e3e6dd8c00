package mutex_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// A multilock takes its locks by one transaction and releases them by another. The token of each part is the czxid of its
// znode, as the server has it.
func TestMultilockInTwoTransactions(t *testing.T) {
	path := testkit.Path(t)
	client, proxy := proxied(t)
	m := multilockOn(t, client, path, 10)
	lease, err := m.Acquire(testkit.Context(t))
	require.NoError(t, err)
	require.NoError(t, lease.Release(), "the first one makes the parents")

	proxy.ResetCounts()
	lease, err = m.Acquire(testkit.Context(t))
	require.NoError(t, err)
	third := observer(t)
	for _, part := range lease.Leases() {
		_, stat, err := third.Exists(part.Path())
		require.NoError(t, err)
		require.Equal(t, stat.Czxid, part.FencingToken())
		require.Equal(t, client.Conn().SessionID(), stat.EphemeralOwner)
	}
	require.NoError(t, lease.Release())
	sent := requests(proxy)
	require.Zero(t, sent["create"]+sent["create2"]+sent["delete"], "%v", sent)
	for i := range 10 {
		require.Empty(t, children(t, fmt.Sprint(path, "/", i)))
	}
}

// Multilocks over some of the same locks, in several goroutines of two clients, exclude each other, and all of them get their turns.
func TestMultilocksExclude(t *testing.T) {
	path := testkit.Path(t)
	c := &crossing{}
	var all sync.WaitGroup
	for _, client := range []*recipes.Client{direct(t), direct(t)} {
		for _, which := range [][]int{{0, 1, 2, 3}, {1, 3}, {0, 2}} {
			var paths []string
			for _, i := range which {
				paths = append(paths, fmt.Sprint(path, "/", i))
			}
			m, err := multilock.NewMutexes(client, paths)
			require.NoError(t, err)
			all.Go(func() { // ends with its rounds; joined below
				for range 30 {
					if err := m.Do(testkit.Context(t), func(context.Context, *multilock.Lease) error { return c.pass(which) }); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	for i := range c.holders {
		require.Empty(t, children(t, fmt.Sprint(path, "/", i)))
	}
}

// crossing counts the holders of each lock.
type crossing struct{ holders [4]atomic.Int32 }

// pass fails if another holder has one of the locks.
func (c *crossing) pass(which []int) (err error) {
	for _, i := range which {
		if c.holders[i].Add(1) > 1 {
			err = fmt.Errorf("two holders of lock %d", i)
		}
	}
	for _, i := range which {
		c.holders[i].Add(-1)
	}
	return err
}

// multilockOn returns a multilock of mutexes, a read lock and a write lock.
func multilockOn(t *testing.T, client *recipes.Client, path string, n int) *multilock.InterProcessMultiLock {
	t.Helper()
	var locks []multilock.Locker
	for i := range n {
		dir := fmt.Sprint(path, "/", i)
		rw, err := rwlock.New(client, dir)
		require.NoError(t, err)
		locks = append(locks, []multilock.Locker{newMutex(t, client, dir), rw.ReadLock(), rw.WriteLock()}[max(0, i-n+3)])
	}
	m, err := multilock.New(locks...)
	require.NoError(t, err)
	return m
}
