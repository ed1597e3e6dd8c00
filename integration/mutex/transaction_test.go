package mutex_test

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// A user closes the zk.Conn of a client, of which one goroutine holds the lock and another waits. The server deletes both
// znodes in one transaction, and reports them in any order. The lease ends before another client gets the lock, and the waiter
// gets none.
func TestUserClosesTheConnection(t *testing.T) {
	path := testkit.Path(t)
	overlaps, granted := 0, 0
	for range 60 {
		client, other := direct(t), direct(t)
		m := newMutex(t, client, path)
		lease := acquire(t, m)
		second := waiting(t, testkit.Context(t), m, path, 2)
		next := waiting(t, testkit.Context(t), newMutex(t, other, path), path, 3)
		client.Conn().Close()
		successor := <-next
		require.NoError(t, successor.err)
		if lease.Context().Err() == nil {
			overlaps++
		}
		if got := <-second; got.err == nil {
			granted++
		} else {
			require.ErrorIs(t, got.err, recipes.ErrClosed)
		}
		require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrClosed)
		require.NoError(t, successor.lease.Release())
		require.NoError(t, client.Close())
		require.NoError(t, other.Close())
	}
	require.Zero(t, overlaps, "rounds in which the lease stood when another client had the lock")
	require.Zero(t, granted, "rounds in which the waiter was granted a znode that was gone")
}

// A third party deletes the znodes of a holder and of its waiter in one transaction. If the waiter is granted the lock in
// between, its lease ends at once.
func TestTransactionDeletesHolderAndWaiter(t *testing.T) {
	path := testkit.Path(t)
	holder, client, third := direct(t), direct(t), observer(t)
	for range 60 {
		lease := acquire(t, newMutex(t, holder, path))
		next := waiting(t, testkit.Context(t), newMutex(t, client, path), path, 2)
		var deletes []any
		for _, name := range children(t, path) {
			deletes = append(deletes, &zk.DeleteRequest{Path: path + "/" + name, Version: -1})
		}
		_, err := third.Multi(deletes...)
		require.NoError(t, err)
		got := <-next // possibly of a znode behind the deleted one
		require.NoError(t, got.err)
		_, err = third.Sync(path)
		require.NoError(t, err)
		found, _, err := third.Exists(got.lease.Path())
		require.NoError(t, err)
		if !found {
			testkit.Receive(t, got.lease.Context().Done(), "the end of the lease")
			require.ErrorIs(t, context.Cause(got.lease.Context()), recipes.ErrNodeDeleted)
		} else {
			require.NoError(t, got.lease.Release())
		}
		testkit.Receive(t, lease.Context().Done(), "the end of the holder's lease")
	}
}
