package mutex_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

func TestClosedWhileWaiting(t *testing.T) {
	path := testkit.Path(t)
	holder := acquire(t, newMutex(t, direct(t), path))
	client := direct(t, recipes.WithSessionTimeout(calm))
	m := newMutex(t, client, path)
	type end struct {
		err error
		at  time.Time
	}
	const waiters = 5
	ends := make(chan end, waiters)
	for range waiters {
		go func() {
			_, err := m.Acquire(testkit.Context(t))
			ends <- end{err, time.Now()}
		}()
	}
	testkit.Eventually(t, func() bool { return len(children(t, path)) == waiters+1 }, "the waiters")
	began := time.Now()
	require.NoError(t, client.Close())
	require.Equal(t, []string{holder.Path()}, queue(t, path), "gone when Close returns")
	for range waiters {
		select {
		case e := <-ends:
			require.ErrorIs(t, e.err, recipes.ErrClosed)
			require.Less(t, e.at.Sub(began), atOnce)
		case <-testkit.Context(t).Done():
			require.Fail(t, "a waiter has not been woken")
		}
	}
	stands(t, holder)
}

func TestClosedWhileHolding(t *testing.T) {
	client := direct(t, recipes.WithSessionTimeout(calm))
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	lease := acquire(t, m)
	inner, err := m.Acquire(lease.Context())
	require.NoError(t, err)
	end := endOf(lease)
	began := time.Now()
	require.NoError(t, client.Close())
	require.Empty(t, children(t, path), "gone when Close returns")
	require.Less(t, moment(t, end, "the end of the lease").Sub(began), atOnce)
	require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrClosed)
	require.ErrorIs(t, context.Cause(inner.Context()), recipes.ErrClosed)
	require.ErrorIs(t, inner.Release(), recipes.ErrClosed)
	require.ErrorIs(t, lease.Release(), recipes.ErrClosed)
	require.ErrorIs(t, lease.Release(), recipes.ErrNotHeld)
}

func TestCallsAfterClose(t *testing.T) {
	client := direct(t)
	path := testkit.Path(t)
	m := newMutex(t, client, path)
	lease := acquire(t, m)
	require.NoError(t, client.Close())
	require.NoError(t, client.Close(), "idempotent")
	require.Equal(t, recipes.Closed, client.State())
	ctx := testkit.Context(t)
	calls := map[string]func() error{
		"Acquire":       func() error { _, err := m.Acquire(ctx); return err },
		"re-entry":      func() error { _, err := m.Acquire(lease.Context()); return err },
		"TryAcquire":    func() error { _, err := m.TryAcquire(ctx); return err },
		"Participants":  func() error { _, err := m.Participants(ctx); return err },
		"AttemptRevoke": func() error { return revoke.New(client).AttemptRevoke(ctx, lease.Path()) },
		"Do": func() error {
			return m.Do(ctx, func(context.Context, *recipes.Lease) error { panic("must not run") })
		},
	}
	for name, call := range calls {
		require.ErrorIs(t, call(), recipes.ErrClosed, name)
	}
	late, err := mutex.New(client, path)
	if err == nil {
		_, err = late.Acquire(ctx)
	}
	require.ErrorIs(t, err, recipes.ErrClosed, "a mutex made after Close")
}

func TestConcurrentClose(t *testing.T) {
	client, proxy := proxiedFor(t, calm)
	path := testkit.Path(t)
	acquire(t, newMutex(t, client, path))
	var group sync.WaitGroup
	errs := make(chan error, 8)
	for range cap(errs) {
		group.Go(func() {
			err := client.Close()
			if proxy.Live() != 0 {
				testkit.Eventually(t, func() bool { return proxy.Live() == 0 }, "the socket is closed when any Close returns")
			}
			errs <- err
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Empty(t, children(t, path))
}

// TestCloseIsBounded requires that Close, in any state of the line, returns long before the session would expire, and
// leaves no goroutine.
func TestCloseIsBounded(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy){
		"connected": func(*testing.T, *recipes.Client, *faultproxy.Proxy) {},
		"just cut":  func(_ *testing.T, _ *recipes.Client, proxy *faultproxy.Proxy) { proxy.Cut() },
		"refused": func(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy) {
			t.Helper()
			outage(t, client, proxy)
		},
		"silent":        func(_ *testing.T, _ *recipes.Client, proxy *faultproxy.Proxy) { proxy.Hold() },
		"answers held":  func(_ *testing.T, _ *recipes.Client, proxy *faultproxy.Proxy) { proxy.HoldDown() },
		"requests held": func(_ *testing.T, _ *recipes.Client, proxy *faultproxy.Proxy) { proxy.HoldUp() },
		"silent from the next handshake on": func(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy) {
			t.Helper()
			proxy.HoldDown()
			proxy.Cut()
			reached(t, client, recipes.Suspended)
		},
		"server gone": func(_ *testing.T, _ *recipes.Client, proxy *faultproxy.Proxy) { proxy.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			children(t, "/") // the goroutines of the observer are not the client's
			before := goleak.IgnoreCurrent()
			proxy, err := faultproxy.Start(ensemble.Shared(t).Server(0))
			require.NoError(t, err)
			defer proxy.Close()
			client, err := recipes.Connect(testkit.Context(t), []string{proxy.Addr()}, recipes.WithSessionTimeout(calm))
			require.NoError(t, err)
			path := testkit.Path(t)
			m := newMutex(t, client, path)
			lease := acquire(t, m)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := waiting(t, ctx, m, path, 2)

			fault(t, client, proxy)
			began := time.Now()
			require.NoError(t, client.Close())
			took := time.Since(began)
			t.Log("Close took", took)
			require.Less(t, took, calm*3/4, "no longer than until what was held could not be held any more") // 2/3
			require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrClosed)
			_, err = outcome(t, done)
			require.ErrorIs(t, err, recipes.ErrClosed)
			proxy.Release()
			proxy.Close()
			goleak.VerifyNone(t, before)
		})
	}
}
