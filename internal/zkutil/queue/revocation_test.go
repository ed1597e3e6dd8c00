package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestRevoke(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		listener, calls := locks.Revocations()
		m := f.Mutex(f.Client(), listener)
		lease := bubble.Acquire(f.T, m.Acquire)
		inner, err := m.Acquire(lease.Context())
		require.NoError(f, err)
		revoker := revoke.New(f.Client())
		require.False(f, locks.IsRevoked(lease))

		require.NoError(f, revoker.AttemptRevoke(f.Context(), lease.Path()))
		data, _, _ := f.Srv.Get(lease.Path())
		require.Equal(f, []byte{'_', '_', 'R', 'E', 'V', 'O', 'K', 'E', '_', '_'}, data)
		require.True(f, locks.IsRevoked(lease))
		require.True(f, locks.IsRevoked(inner))
		f.RequireRevocation(calls, lease)
		late, err := m.Acquire(inner.Context())
		require.NoError(f, err)
		require.True(f, locks.IsRevoked(late))
		f.Stands(lease)
		require.Equal(f, []string{lease.Path()}, f.Contenders(), "still held")

		// Once more, because the listener is called once per hold.
		require.NoError(f, revoker.AttemptRevoke(f.Context(), lease.Path()))
		for _, l := range []*recipes.Lease{late, inner, lease} {
			require.NoError(f, l.Release())
		}
		require.Empty(f, f.Contenders())
		next := bubble.Acquire(f.T, m.Acquire)
		require.False(f, locks.IsRevoked(next))
		require.NoError(f, revoker.AttemptRevoke(f.Context(), next.Path()))
		f.RequireRevocation(calls, next) // a superfluous call for the former hold would precede it
		require.NoError(f, next.Release())
		synctest.Wait()
		require.Empty(f, calls)

		last := bubble.Acquire(f.T, m.Acquire)
		require.NoError(f, last.Release())
		require.False(f, locks.IsRevoked(last), "its end is no request")
	})
}

// TestRevokeWhileWaiting revokes before the grant, which Curator misses.
func TestRevokeWhileWaiting(t *testing.T) {
	for name, fault := range map[string]func(f *locks.Fixture, client *recipes.Client){
		"undisturbed": func(*locks.Fixture, *recipes.Client) {},
		"then cut":    func(f *locks.Fixture, client *recipes.Client) { f.CutAndReconnect(client) },
		"read, then cut": func(f *locks.Fixture, client *recipes.Client) {
			bubble.Pass(bubble.Moment)
			f.CutAndReconnect(client)
		},
	} {
		t.Run(name, func(t *testing.T) {
			locks.Run(t, func(f *locks.Fixture) {
				listener, calls := locks.Revocations()
				client := f.Troubled()
				holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
				done := f.Waiting(f.Context(), f.Mutex(client, listener))
				place := f.Contenders()[1]
				log := f.Srv.Observe()
				require.NoError(f, revoke.New(f.Client()).AttemptRevoke(f.Context(), place))
				fault(f, client)
				bubble.Pass(10 * bubble.Moment) // until watches are set again, and the request for the data is answered
				require.False(f, locks.IsRevoked(holder))
				require.Empty(f, done, "the revoked waiter")
				require.Positive(f, log.Count(zktest.OpGetData), "the revocation is read before the grant")
				require.NoError(f, holder.Release())
				lease := bubble.Granted(f, done)
				require.Equal(f, place, lease.Path())
				require.True(f, locks.IsRevoked(lease))
				f.RequireRevocation(calls, lease)
				f.Stands(lease)
				require.NoError(f, lease.Release())
				require.Empty(f, calls)
			})
		})
	}
}

// TestRevokeDuringOutage: of a waiter, then of the holder.
func TestRevokeDuringOutage(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		listener, calls := locks.Revocations()
		m := f.Mutex(f.Troubled(), listener)
		revoker := revoke.New(f.Client())

		holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		done := f.Waiting(f.Context(), m)
		place := f.Contenders()[1]
		over := f.Outage()
		require.NoError(f, revoker.AttemptRevoke(f.Context(), place))
		require.NoError(f, holder.Release())
		over()
		lease := bubble.Granted(f, done)
		require.Equal(f, place, lease.Path())
		require.True(f, locks.IsRevoked(lease))
		f.RequireRevocation(calls, lease)
		require.NoError(f, lease.Release())

		lease = bubble.Acquire(f.T, m.Acquire)
		over = f.Outage()
		require.NoError(f, revoker.AttemptRevoke(f.Context(), lease.Path()))
		require.False(f, locks.IsRevoked(lease))
		over()
		f.RequireRevocation(calls, lease)
		require.True(f, locks.IsRevoked(lease))
		f.Stands(lease)
		require.NoError(f, lease.Release())
		require.Empty(f, calls)
	})
}

func TestRevocationListenerPanics(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		var log testkit.Log
		client := f.Client(recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		calls := make(chan *recipes.Lease, 2)
		m := f.Mutex(client, mutex.WithRevocationListener(func(lease *recipes.Lease) {
			calls <- lease
			panic("listener of " + lease.Path())
		}))
		for range 2 {
			lease := bubble.Acquire(f.T, m.Acquire)
			require.NoError(f, revoke.New(client).AttemptRevoke(f.Context(), lease.Path()))
			f.RequireRevocation(calls, lease)
			f.Stands(lease)
			require.Contains(f, log.String(), "listener of "+lease.Path(), "the panic is logged")
			require.NoError(f, lease.Release())
		}
	})
}

// TestRevocationListenerReleases is what a listener is for.
func TestRevocationListenerReleases(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		released := make(chan error, 1)
		m := f.Mutex(f.Client(), mutex.WithRevocationListener(func(lease *recipes.Lease) { released <- lease.Release() }))
		lease := bubble.Acquire(f.T, m.Acquire)
		next := f.Waiting(f.Context(), f.Mutex(f.Client()))
		require.NoError(f, revoke.New(f.Client()).AttemptRevoke(f.Context(), lease.Path()))
		require.NoError(f, bubble.Granted(f, next).Release())
		require.NoError(f, <-released)
		require.ErrorIs(f, context.Cause(lease.Context()), recipes.ErrReleased)
		require.ErrorIs(f, lease.Release(), recipes.ErrNotHeld)
		require.Empty(f, f.Contenders())
	})
}

func TestRevokeOfDeletedZnode(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		lease := bubble.Acquire(f.T, f.Mutex(client).Acquire)
		require.NoError(f, lease.Release())
		revoker := revoke.New(client)
		require.NoError(f, revoker.AttemptRevoke(f.Context(), lease.Path()))
		require.NoError(f, revoker.AttemptRevoke(f.Context(), "/no/such/parent/_c_x-lock-0000000001"))
	})
}

// TestRevokeOfOtherZnodes requires that a typo does not overwrite other data.
func TestRevokeOfOtherZnodes(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		const root = "/root"
		f.Srv.Put(root, []byte("root"))
		others := []string{"config", "lock-", "lock-12", "_c_x", "lock-00000000010", "lock-000000000a", "x-write-0000000001x"}
		bad := []string{
			"", "/", "relative", "relative/lock-0000000001", root + "/", root + "/lock-0000000001/", root + "//lock-0000000001",
			root + "/../lock-0000000001", "/zookeeper/lock-0000000001", root,
		}
		for _, name := range others {
			f.Srv.Put(root+"/"+name, []byte("data"))
			bad = append(bad, root+"/"+name)
		}
		revoker := revoke.New(f.Client())
		log := f.Srv.Observe()
		for _, path := range bad {
			err := revoker.AttemptRevoke(f.Context(), path)
			require.ErrorIs(f, err, recipes.ErrInvalidPath, "%q", path)
			var op *recipes.OpError
			require.ErrorAs(f, err, &op)
			require.Equal(f, path, op.Path)
		}
		require.Empty(f, log.Requests(), "nothing is sent")
		for _, name := range others {
			data, _, _ := f.Srv.Get(root + "/" + name)
			require.Equal(f, "data", string(data))
		}
		data, _, _ := f.Srv.Get(root)
		require.Equal(f, "root", string(data))
	})
}

// TestLogOfARevocation requires one line per lease, for any number of requests.
func TestLogOfARevocation(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Client(recipes.WithID("web-1"), recipes.WithLogger(log.Logger(slog.LevelInfo)))
		lease := bubble.Acquire(f.T, f.Mutex(client).Acquire)
		locks.TakeLog(log)
		bubble.Pass(time.Minute)
		revoker := revoke.New(f.Client())
		require.NoError(f, revoker.AttemptRevoke(f.Context(), lease.Path()))
		require.NoError(f, revoker.AttemptRevoke(f.Context(), lease.Path()))
		lines := locks.TakeLog(log)
		require.Len(f, lines, 1)
		require.Regexp(f, fmt.Sprintf(`^level=INFO msg="asked to release" path=%s token=%d id=web-1 held=1m0\S*s$`, locks.Path, lease.FencingToken()), lines[0])
		require.NoError(f, lease.Release())
	})
}
