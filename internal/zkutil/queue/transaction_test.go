package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// delayEvents has a tenth of a second and more pass between two events of one transaction on a client's connection.
func delayEvents(f *locks.Fixture, client *recipes.Client) {
	f.Srv.SetBandwidth(500, client.Conn().SessionID())
}

// A user closes the zk.Conn of a client, of which one goroutine holds the lock and others wait. The server deletes all their
// znodes in one transaction, and reports the holder's first. The leases end before the request is sent, and no waiter gets one.
func TestUserClosesTheConnection(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client, other := f.Troubled(), f.Client()
		lease := bubble.Acquire(f.T, f.Mutex(client).Acquire)
		inner, err := f.Mutex(client).Acquire(lease.Context())
		require.NoError(f, err)
		waiting := []<-chan bubble.Outcome[*recipes.Lease]{f.Waiting(f.Context(), f.Mutex(client)), f.Waiting(f.Context(), f.Mutex(client))}
		next := f.Waiting(f.Context(), f.Mutex(other))
		delayEvents(f, client)
		var isStanding atomic.Bool // when the server got the request
		f.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpClose && (lease.Context().Err() == nil || inner.Context().Err() == nil) {
				isStanding.Store(true)
			}
			return zktest.Fault{}
		})
		client.Conn().Close()
		successor := bubble.Granted(f, next)
		require.False(f, isStanding.Load(), "a lease has outlived the request that closes its session")
		require.ErrorIs(f, f.Cause(lease), recipes.ErrClosed)
		require.ErrorIs(f, f.Cause(inner), recipes.ErrClosed)
		for _, w := range waiting {
			require.ErrorIs(f, bubble.Receive(f, w).Err, recipes.ErrClosed)
		}
		_, err = f.Mutex(client).Acquire(lease.Context())
		require.ErrorIs(f, err, recipes.ErrClosed)
		_, err = f.Mutex(client).Acquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrClosed)
		f.Stands(successor)
		require.Equal(f, recipes.Closed, client.State())
		require.NoError(f, client.Close())
	})
}

// A third party deletes the znodes of a holder and of the next waiter in one transaction, the holder's first. The waiter may be
// granted the lock between the two events. Its lease ends with the second one, like an older lease of the same client.
func TestTransactionDeletesHolderAndWaiter(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client, other := f.Troubled(), f.Client()
		holder := bubble.Acquire(f.T, f.Mutex(other).Acquire)
		next := f.Waiting(f.Context(), f.Mutex(client))
		own := f.Contenders()[1]
		beside, err := mutex.New(client, "/locks/b")
		require.NoError(f, err)
		standing := bubble.Acquire(f.T, beside.Acquire)
		bubble.Pass(bubble.Moment) // it is watched
		ends := locks.EndOf(standing)
		delayEvents(f, client)
		_, err = f.Client().Conn().Multi(
			&zk.DeleteRequest{Path: holder.Path(), Version: -1},
			&zk.DeleteRequest{Path: own, Version: -1},
			&zk.DeleteRequest{Path: standing.Path(), Version: -1},
		)
		require.NoError(f, err)
		granted := bubble.Granted(f, next)
		require.Equal(f, own, granted.Path())
		at, cause := bubble.Ended(f.T, granted)
		require.ErrorIs(f, cause, recipes.ErrNodeDeleted)
		require.False(f, at.After(<-ends), "a lease that stood before has ended earlier")
		synctest.Wait()
		require.ErrorIs(f, context.Cause(holder.Context()), recipes.ErrNodeDeleted)
	})
}
