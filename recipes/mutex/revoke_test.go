package mutex_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// revocations is a listener that passes its leases on.
func revocations() (mutex.Option, <-chan *recipes.Lease) {
	calls := make(chan *recipes.Lease, 16)
	return mutex.WithRevocationListener(func(lease *recipes.Lease) { calls <- lease }), calls
}

// isRevoked reports whether a lease's revocation is known by now.
func isRevoked(lease *recipes.Lease) bool {
	synctest.Wait()
	select {
	case <-lease.Revoked():
		return true
	default:
		return false
	}
}

// called waits for the listener's call.
func (f *fixture) called(calls <-chan *recipes.Lease, lease *recipes.Lease) {
	f.Helper()
	select {
	case got := <-calls:
		require.Same(f, lease, got)
	case <-time.After(time.Hour):
		require.FailNow(f, "the listener has not been called")
	}
}

func TestRevoke(t *testing.T) {
	inBubble(t, func(f *fixture) {
		listener, calls := revocations()
		m := f.mutex(f.client(), listener)
		lease := acquire(f.T, m)
		inner, err := m.Acquire(lease.Context())
		require.NoError(f, err)
		revoker := revoke.New(f.client())
		require.False(f, isRevoked(lease))

		require.NoError(f, revoker.AttemptRevoke(f.Context(), lease.Path()))
		data, _, _ := f.srv.Get(lease.Path())
		require.Equal(f, []byte{'_', '_', 'R', 'E', 'V', 'O', 'K', 'E', '_', '_'}, data)
		require.True(f, isRevoked(lease))
		require.True(f, isRevoked(inner))
		f.called(calls, lease)
		late, err := m.Acquire(inner.Context())
		require.NoError(f, err)
		require.True(f, isRevoked(late))
		f.stands(lease)
		require.Equal(f, []string{lease.Path()}, f.queue(), "still held")

		// Once more: the listener is called once a hold.
		require.NoError(f, revoker.AttemptRevoke(f.Context(), lease.Path()))
		for _, l := range []*recipes.Lease{late, inner, lease} {
			require.NoError(f, l.Release())
		}
		require.Empty(f, f.queue())
		next := acquire(f.T, m)
		require.False(f, isRevoked(next))
		require.NoError(f, revoker.AttemptRevoke(f.Context(), next.Path()))
		f.called(calls, next) // one call too many of the former hold would come before it
		require.NoError(f, next.Release())
		synctest.Wait()
		require.Empty(f, calls)

		last := acquire(f.T, m)
		require.NoError(f, last.Release())
		require.False(f, isRevoked(last), "its end is no request")
	})
}

// TestRevokeWhileWaiting: Curator misses the request that came before the grant.
func TestRevokeWhileWaiting(t *testing.T) {
	for name, fault := range map[string]func(f *fixture, client *recipes.Client){
		"undisturbed": func(*fixture, *recipes.Client) {},
		"then cut":    func(f *fixture, client *recipes.Client) { f.cutAndReconnect(client) },
		"read, then cut": func(f *fixture, client *recipes.Client) {
			pass(moment)
			f.cutAndReconnect(client)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				listener, calls := revocations()
				client := f.troubled()
				holder := acquire(f.T, f.mutex(f.client()))
				done := f.waiting(f.Context(), f.mutex(client, listener))
				place := f.queue()[1]
				log := f.srv.Observe()
				require.NoError(f, revoke.New(f.client()).AttemptRevoke(f.Context(), place))
				fault(f, client)
				pass(10 * moment) // until watches are set again, and the request for the data is answered
				require.False(f, isRevoked(holder))
				require.Empty(f, done, "the revoked waiter")
				require.Positive(f, log.Count(zktest.OpGetData), "the revocation is read before the grant")
				require.NoError(f, holder.Release())
				lease := f.granted(done)
				require.Equal(f, place, lease.Path())
				require.True(f, isRevoked(lease))
				f.called(calls, lease)
				f.stands(lease)
				require.NoError(f, lease.Release())
				require.Empty(f, calls)
			})
		})
	}
}

// TestRevokeDuringOutage: of a waiter, then of the holder.
func TestRevokeDuringOutage(t *testing.T) {
	inBubble(t, func(f *fixture) {
		listener, calls := revocations()
		m := f.mutex(f.troubled(), listener)
		revoker := revoke.New(f.client())

		holder := acquire(f.T, f.mutex(f.client()))
		done := f.waiting(f.Context(), m)
		place := f.queue()[1]
		over := f.outage()
		require.NoError(f, revoker.AttemptRevoke(f.Context(), place))
		require.NoError(f, holder.Release())
		over()
		lease := f.granted(done)
		require.Equal(f, place, lease.Path())
		require.True(f, isRevoked(lease))
		f.called(calls, lease)
		require.NoError(f, lease.Release())

		lease = acquire(f.T, m)
		over = f.outage()
		require.NoError(f, revoker.AttemptRevoke(f.Context(), lease.Path()))
		require.False(f, isRevoked(lease))
		over()
		f.called(calls, lease)
		require.True(f, isRevoked(lease))
		f.stands(lease)
		require.NoError(f, lease.Release())
		require.Empty(f, calls)
	})
}

func TestRevocationListenerPanics(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var log lockedBuffer
		client := f.client(recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		calls := make(chan *recipes.Lease, 2)
		m := f.mutex(client, mutex.WithRevocationListener(func(lease *recipes.Lease) {
			calls <- lease
			panic("listener of " + lease.Path())
		}))
		for range 2 {
			lease := acquire(f.T, m)
			require.NoError(f, revoke.New(client).AttemptRevoke(f.Context(), lease.Path()))
			f.called(calls, lease)
			f.stands(lease)
			require.Contains(f, log.String(), "listener of "+lease.Path(), "the panic is logged")
			require.NoError(f, lease.Release())
		}
	})
}

// TestRevocationListenerReleases is what a listener is for.
func TestRevocationListenerReleases(t *testing.T) {
	inBubble(t, func(f *fixture) {
		released := make(chan error, 1)
		m := f.mutex(f.client(), mutex.WithRevocationListener(func(lease *recipes.Lease) { released <- lease.Release() }))
		lease := acquire(f.T, m)
		next := f.waiting(f.Context(), f.mutex(f.client()))
		require.NoError(f, revoke.New(f.client()).AttemptRevoke(f.Context(), lease.Path()))
		require.NoError(f, f.granted(next).Release())
		require.NoError(f, <-released)
		require.ErrorIs(f, context.Cause(lease.Context()), recipes.ErrReleased)
		require.ErrorIs(f, lease.Release(), recipes.ErrNotHeld)
		require.Empty(f, f.queue())
	})
}

func TestRevokeOfGoneZnode(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		lease := acquire(f.T, f.mutex(client))
		require.NoError(f, lease.Release())
		revoker := revoke.New(client)
		require.NoError(f, revoker.AttemptRevoke(f.Context(), lease.Path()))
		require.NoError(f, revoker.AttemptRevoke(f.Context(), "/no/such/parent/_c_x-lock-0000000001"))
	})
}

// TestRevokeOfOtherZnodes: a typo must not overwrite somebody's data.
func TestRevokeOfOtherZnodes(t *testing.T) {
	inBubble(t, func(f *fixture) {
		const root = "/root"
		f.srv.Put(root, []byte("root"))
		others := []string{"config", "lock-", "lock-12", "_c_x", "lock-00000000010", "lock-000000000a", "x-write-0000000001x"}
		bad := []string{
			"", "/", "relative", "relative/lock-0000000001", root + "/", root + "/lock-0000000001/", root + "//lock-0000000001",
			root + "/../lock-0000000001", "/zookeeper/lock-0000000001", root,
		}
		for _, name := range others {
			f.srv.Put(root+"/"+name, []byte("data"))
			bad = append(bad, root+"/"+name)
		}
		revoker := revoke.New(f.client())
		log := f.srv.Observe()
		for _, path := range bad {
			err := revoker.AttemptRevoke(f.Context(), path)
			require.ErrorIs(f, err, recipes.ErrInvalidPath, "%q", path)
			var op *recipes.OpError
			require.ErrorAs(f, err, &op)
			require.Equal(f, path, op.Path)
		}
		require.Empty(f, log.Requests(), "nothing is sent")
		for _, name := range others {
			data, _, _ := f.srv.Get(root + "/" + name)
			require.Equal(f, "data", string(data))
		}
		data, _, _ := f.srv.Get(root)
		require.Equal(f, "root", string(data))
	})
}

// TestOtherDataIsNoRevocation: and a revocation is still seen after it.
func TestOtherDataIsNoRevocation(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		listener, calls := revocations()
		lease := acquire(f.T, f.mutex(client, listener))
		for _, data := range []string{"other", "", "__REVOKE__ ", "__revoke__", "__REVOKE_", " __REVOKE__"} {
			log := f.srv.Observe()
			f.srv.Put(lease.Path(), []byte(data))
			pass(moment)
			require.Positive(f, log.Count(zktest.OpGetData), "the change is noticed")
			log.Stop()
			require.False(f, isRevoked(lease))
		}
		f.stands(lease)
		require.NoError(f, revoke.New(client).AttemptRevoke(f.Context(), lease.Path()))
		require.True(f, isRevoked(lease))
		f.called(calls, lease)
		require.NoError(f, lease.Release())
		require.Empty(f, calls)
	})
}
