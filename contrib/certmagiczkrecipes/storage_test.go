package certmagiczkrecipes_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/contrib/certmagiczkrecipes"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

const path = "/locks/certmagic"

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where clients log
	goleak.VerifyTestMain(m)
}

// host returns the storage of a host. Locks of the storage inside would hang.
func host(t *testing.T, server *zktest.Server) (*certmagiczkrecipes.Storage, *recipes.Client) {
	t.Helper()
	client := zkclient.Connect(t, server)
	storage, err := certmagiczkrecipes.New(client, path, &certmagic.FileStorage{Path: t.TempDir()}, mutex.WithName("certmagic"))
	require.NoError(t, err)
	return storage, client
}

// start runs lock in a goroutine, which ends with it, and returns its result once lock has returned or blocks.
func start(lock func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- lock() }()
	synctest.Wait()
	return result
}

func TestLockExcludesHostsAndCallers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server, ctx := zktest.NewServer(t), t.Context()
		a, _ := host(t, server)
		b, _ := host(t, server)
		for _, name := range []string{"issue_cert_example.com", "../..", "", "ü/*?\x00", "lock-0000000000"} {
			require.NoError(t, a.Lock(ctx, name))
			for _, other := range []*certmagiczkrecipes.Storage{a, b} {
				ok, err := other.TryLock(ctx, name)
				require.NoError(t, err)
				require.False(t, ok)
				waiting := start(func() error { return other.Lock(ctx, name) })
				require.Empty(t, waiting)
				require.NoError(t, a.Unlock(ctx, name))
				require.NoError(t, <-waiting)
				require.NoError(t, other.Unlock(ctx, name))
				require.NoError(t, a.Lock(ctx, name))
			}
			ok, err := b.TryLock(ctx, name+"x")
			require.NoError(t, err)
			require.True(t, ok, "another name")
			require.NoError(t, b.Unlock(ctx, name+"x"))
			require.NoError(t, a.Unlock(ctx, name))
		}
		server.RequireIdle(t)
	})
}

func TestContextBoundsLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		a, _ := host(t, server)
		b, _ := host(t, server)
		require.NoError(t, a.Lock(t.Context(), "name"))
		for _, other := range []*certmagiczkrecipes.Storage{a, b} {
			cause := errors.New("shutdown")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
			defer cancel()
			began := time.Now()
			err := other.Lock(ctx, "name")
			require.Equal(t, time.Minute, time.Since(began))
			var wait *recipes.WaitError
			require.ErrorAs(t, err, &wait)
			require.Equal(t, time.Minute, wait.Waited)
			require.ErrorIs(t, err, recipes.ErrNotAcquired)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, cause)
			require.ErrorIs(t, other.Lock(ctx, "name"), context.DeadlineExceeded)
			_, err = b.TryLock(ctx, "name")
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.NoError(t, a.Unlock(t.Context(), "name"))
		require.NoError(t, b.Lock(t.Context(), "name"), "the failures have left nothing")
		require.NoError(t, b.Unlock(t.Context(), "name"))
	})
}

func TestLockOutlivesItsContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		a, _ := host(t, server)
		b, _ := host(t, server)
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, a.Lock(ctx, "name"))
		cancel()
		synctest.Wait()
		ok, err := b.TryLock(t.Context(), "name")
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, a.Unlock(ctx, "name"))
	})
}

func TestUnlockReturnsLoss(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server, ctx := zktest.NewServer(t), t.Context()
		a, client := host(t, server)
		b, _ := host(t, server)
		require.NoError(t, a.Lock(ctx, "name"))
		server.Expire(client.Conn().SessionID())
		require.NoError(t, b.Lock(ctx, "name"))

		sameHost := start(func() error { return a.Lock(ctx, "name") })
		require.NoError(t, b.Unlock(ctx, "name"))
		synctest.Wait()
		require.Empty(t, sameHost, "the first caller works on")
		require.ErrorIs(t, a.Unlock(ctx, "name"), recipes.ErrSessionLost)
		require.NoError(t, <-sameHost)
		ok, err := b.TryLock(ctx, "name")
		require.NoError(t, err)
		require.False(t, ok, "the Unlock after the loss has not released the lock of the second caller")
		require.NoError(t, a.Unlock(ctx, "name"))
		require.ErrorIs(t, a.Unlock(ctx, "name"), recipes.ErrNotHeld)
	})
}

func TestRenewalAcquiresLostLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server, ctx := zktest.NewServer(t), t.Context()
		a, client := host(t, server)
		b, _ := host(t, server)
		require.ErrorIs(t, a.RenewLockLease(ctx, "name", time.Hour), recipes.ErrNotHeld)
		require.NoError(t, a.Lock(ctx, "name"))
		requests := server.Observe()
		require.NoError(t, a.RenewLockLease(ctx, "name", time.Hour))
		require.Empty(t, requests.Requests(zktest.OpAny), "the lock is held")

		server.Expire(client.Conn().SessionID())
		require.NoError(t, b.Lock(ctx, "name"))
		synctest.Wait() // for the client to learn of the expiry
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		require.ErrorIs(t, a.RenewLockLease(short, "name", time.Hour), recipes.ErrNotAcquired, "another host has the lock")
		renewed := start(func() error { return a.RenewLockLease(ctx, "name", time.Hour) })
		require.Empty(t, renewed)
		require.NoError(t, b.Unlock(ctx, "name"))
		require.NoError(t, <-renewed)
		ok, err := b.TryLock(ctx, "name")
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, a.Unlock(ctx, "name"), "the loss is repaired")
	})
}

func TestUnlockDuringUnlockAndRenewal(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server, ctx := zktest.NewServer(t), t.Context()
		a, client := host(t, server)
		b, _ := host(t, server)
		require.NoError(t, a.Lock(ctx, "name"))
		remove := server.Delay(zktest.OpDelete, time.Second)
		first := start(func() error { return a.Unlock(ctx, "name") })
		require.ErrorIs(t, a.Unlock(ctx, "name"), recipes.ErrNotHeld)
		require.NoError(t, <-first)
		remove()

		require.NoError(t, a.Lock(ctx, "name"))
		server.Expire(client.Conn().SessionID())
		require.NoError(t, b.Lock(ctx, "name"))
		synctest.Wait() // for the client to learn of the expiry
		renewed := start(func() error { return a.RenewLockLease(ctx, "name", time.Hour) })
		require.ErrorIs(t, a.Unlock(ctx, "name"), recipes.ErrSessionLost)
		require.NoError(t, b.Unlock(ctx, "name"))
		require.ErrorIs(t, <-renewed, recipes.ErrNotHeld)
		server.RequireIdle(t)
	})
}

func TestRefusedArguments(t *testing.T) {
	client := zkclient.Connect(t, zktest.NewServer(t))
	storage := &certmagic.FileStorage{Path: t.TempDir()}
	_, err := certmagiczkrecipes.New(client, path, nil)
	require.ErrorIs(t, err, recipes.ErrInvalidArgument)
	_, err = certmagiczkrecipes.New(client, "no/path", storage)
	require.ErrorIs(t, err, recipes.ErrInvalidPath)
	_, err = certmagiczkrecipes.New(nil, path, storage)
	require.ErrorIs(t, err, recipes.ErrInvalidArgument)
}
