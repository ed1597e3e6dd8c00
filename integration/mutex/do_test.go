package mutex_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/recipes"
)

var errOfTest = errors.New("of the test")

// Do holds the lock while fn runs, and not longer; its error is fn's.
func TestDo(t *testing.T) {
	path := lockPath(t)
	m := newMutex(t, direct(t), path)
	var lease *recipes.Lease
	for _, want := range []error{nil, errOfTest} {
		err := m.Do(testContext(t), func(ctx context.Context, l *recipes.Lease) error {
			lease = l
			require.NoError(t, ctx.Err())
			require.Equal(t, []string{l.Path()[len(path)+1:]}, children(t, path))
			_, err := m.TryAcquire(testContext(t))
			require.ErrorIs(t, err, recipes.ErrNotAcquired)
			return want
		})
		require.Equal(t, want, err, "exactly fn's error")
		require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrReleased)
		require.ErrorIs(t, lease.Release(), recipes.ErrNotHeld)
		require.Empty(t, children(t, path))
	}
}

// A loss ends fn's context with its cause, and Do tells it beside fn's own error.
func TestDoTellsALoss(t *testing.T) {
	losses := map[error]func(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy, lease *recipes.Lease){
		recipes.ErrSessionLost: func(t *testing.T, client *recipes.Client, proxy *faultproxy.Proxy, _ *recipes.Lease) {
			t.Helper()
			expireUnheard(t, client, proxy)
		},
		recipes.ErrNodeDeleted: func(t *testing.T, _ *recipes.Client, _ *faultproxy.Proxy, lease *recipes.Lease) {
			t.Helper()
			require.NoError(t, observer(t).Delete(lease.Path(), -1))
		},
		recipes.ErrClosed: func(t *testing.T, client *recipes.Client, _ *faultproxy.Proxy, _ *recipes.Lease) {
			t.Helper()
			require.NoError(t, client.Close())
		},
	}
	for loss, lose := range losses {
		for _, own := range []error{nil, errOfTest} {
			client, proxy := proxied(t)
			path := lockPath(t)
			m := newMutex(t, client, path)
			err := m.Do(testContext(t), func(ctx context.Context, lease *recipes.Lease) error {
				lose(t, client, proxy, lease)
				select {
				case <-ctx.Done():
				case <-testContext(t).Done():
					require.Fail(t, "fn's context has not ended")
				}
				require.ErrorIs(t, context.Cause(ctx), loss)
				return own
			})
			require.ErrorIs(t, err, loss)
			if own != nil {
				require.ErrorIs(t, err, own)
			}
			require.Empty(t, children(t, path))
			if loss != recipes.ErrClosed { //nolint:errorlint // a table's value
				require.NoError(t, m.Do(testContext(t), func(context.Context, *recipes.Lease) error { return nil }), "the same value works again")
			}
		}
	}
}

// A panic of fn reaches Do's caller, after the release.
func TestDoPanics(t *testing.T) {
	path := lockPath(t)
	m := newMutex(t, direct(t), path)
	var inside *recipes.Lease
	require.PanicsWithValue(t, errOfTest, func() {
		defer func() { require.Empty(t, children(t, path), "the lock is free while the panic unwinds") }()
		_ = m.Do(testContext(t), func(_ context.Context, lease *recipes.Lease) error {
			inside = lease
			require.Len(t, children(t, path), 1)
			panic(errOfTest)
		})
	})
	require.ErrorIs(t, context.Cause(inside.Context()), recipes.ErrReleased)
}

// runtime.Goexit, as of a failed test, releases as well.
func TestDoGoexit(t *testing.T) {
	path := lockPath(t)
	m := newMutex(t, direct(t), path)
	ended, after := make(chan struct{}), false
	go func() { // joined through ended
		defer close(ended)
		_ = m.Do(testContext(t), func(context.Context, *recipes.Lease) error {
			runtime.Goexit()
			return nil
		})
		after = true
	}()
	select {
	case <-ended:
	case <-testContext(t).Done():
		require.Fail(t, "the goroutine has not ended")
	}
	require.False(t, after, "the goroutine has ended in Do")
	require.Empty(t, children(t, path))
}

// The context of fn ends with Do's own, with the same cause; the lock stays fn's
// until it returns.
func TestDoEndsWithItsContext(t *testing.T) {
	path := lockPath(t)
	m := newMutex(t, direct(t), path)
	ctx, cancel := context.WithCancelCause(testContext(t))
	err := m.Do(ctx, func(inner context.Context, lease *recipes.Lease) error {
		cancel(errOfTest)
		select {
		case <-inner.Done():
		case <-testContext(t).Done():
			require.Fail(t, "fn's context has not ended")
		}
		require.ErrorIs(t, context.Cause(inner), errOfTest)
		require.NoError(t, lease.Context().Err(), "the lease itself goes on")
		require.Len(t, children(t, path), 1)
		again, err := m.Acquire(lease.Context())
		require.NoError(t, err, "for clean-up the lease's own context still re-enters")
		require.NoError(t, again.Release())
		return context.Cause(inner)
	})
	require.ErrorIs(t, err, errOfTest)
	require.NotErrorIs(t, err, recipes.ErrReleased)
	require.Empty(t, children(t, path))

	ran := false
	err = m.Do(ctx, func(context.Context, *recipes.Lease) error { ran = true; return nil })
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errOfTest)
	require.False(t, ran, "no lock, no fn")
}

// fn may release early.
func TestDoReleasedByFn(t *testing.T) {
	path := lockPath(t)
	m := newMutex(t, direct(t), path)
	var next *recipes.Lease
	require.NoError(t, m.Do(testContext(t), func(ctx context.Context, lease *recipes.Lease) error {
		require.NoError(t, lease.Release())
		require.ErrorIs(t, context.Cause(ctx), recipes.ErrReleased)
		next = acquire(t, m)
		return nil
	}))
	require.NoError(t, next.Context().Err(), "Do releases its own lease alone")
	require.Len(t, children(t, path), 1)
	require.NoError(t, next.Release())
}

// A release that is not confirmed is an error of Do, and the znode goes later.
func TestDoTellsAFailedRelease(t *testing.T) {
	client, proxy := proxied(t, recipes.WithSessionTimeout(longSession), recipes.WithOperationTimeout(patience/60))
	path := lockPath(t)
	m := newMutex(t, client, path)
	err := m.Do(testContext(t), func(context.Context, *recipes.Lease) error {
		proxy.Hold()
		return errOfTest
	})
	require.ErrorIs(t, err, errOfTest)
	var failed *recipes.OpError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "lease: release", failed.Op)
	require.Len(t, children(t, path), 1)
	proxy.Release()
	eventually(t, func() bool { return len(children(t, path)) == 0 }, "the deletion goes on")
}
