package mutex_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// longSession is long enough for no heartbeat and no ping to be due in a test that
// counts requests.
const longSession = 60 * time.Second

// permutations of the order in which three leases can be released.
var permutations = [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// Three entries of one hold cost the requests of one, and the znode goes with the
// last of them, whichever that is.
func TestReentry(t *testing.T) {
	client, proxy := proxied(t, recipes.WithSessionTimeout(longSession))
	for _, order := range permutations {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			path := lockPath(t)
			m := newMutex(t, client, path)
			first := acquire(t, m)
			proxy.ResetCounts()
			leases := []*recipes.Lease{first}
			for range 2 { // each entered with the context of the one before
				lease, err := m.Acquire(leases[len(leases)-1].Context())
				require.NoError(t, err)
				leases = append(leases, lease)
			}
			for _, lease := range leases {
				require.Equal(t, first.FencingToken(), lease.FencingToken())
				require.Equal(t, first.Path(), lease.Path())
				require.NoError(t, lease.Context().Err())
			}
			require.Len(t, children(t, path), 1)
			for released, i := range order {
				require.Empty(t, requests(proxy), "requests of re-entry and of all but the last release")
				require.Len(t, children(t, path), 1)
				require.NoError(t, leases[i].Release())
				require.ErrorIs(t, context.Cause(leases[i].Context()), recipes.ErrReleased)
				require.ErrorIs(t, leases[i].Release(), recipes.ErrNotHeld)
				for _, other := range order[released+1:] {
					require.NoError(t, leases[other].Context().Err(), "the other leases stay")
				}
			}
			require.Equal(t, map[string]int{"delete": 1}, requests(proxy))
			require.Empty(t, children(t, path))
		})
	}
}

// TryAcquire and Do re-enter too.
func TestReentryOfTryAndDo(t *testing.T) {
	client, proxy := proxied(t, recipes.WithSessionTimeout(longSession))
	path := lockPath(t)
	m := newMutex(t, client, path)
	outer := acquire(t, m)
	proxy.ResetCounts()
	tried, err := m.TryAcquire(outer.Context())
	require.NoError(t, err)
	require.Equal(t, outer.FencingToken(), tried.FencingToken())
	require.NoError(t, m.Do(tried.Context(), func(ctx context.Context, lease *recipes.Lease) error {
		require.Equal(t, outer.FencingToken(), lease.FencingToken())
		deepest, err := m.Acquire(ctx)
		require.NoError(t, err)
		require.Equal(t, outer.FencingToken(), deepest.FencingToken())
		return deepest.Release()
	}))
	require.NoError(t, outer.Release())
	require.Empty(t, requests(proxy))
	require.NoError(t, tried.Release())
	require.Empty(t, children(t, path))
}

// The context carries the hold through whatever is derived from it.
func TestReentryWithDerivedContexts(t *testing.T) {
	type key struct{}
	path := lockPath(t)
	m := newMutex(t, direct(t), path)
	outer := acquire(t, m)
	canceled, cancel := context.WithCancel(outer.Context())
	derived := map[string]context.Context{
		"value":         context.WithValue(outer.Context(), key{}, 1),
		"cancel":        canceled,
		"withoutCancel": context.WithoutCancel(outer.Context()),
	}
	for name, ctx := range derived {
		inner, err := m.Acquire(ctx)
		require.NoError(t, err, name)
		require.Equal(t, outer.FencingToken(), inner.FencingToken(), name)
		require.NoError(t, inner.Release(), name)
	}
	cancel()
	_, err := m.Acquire(canceled)
	require.ErrorIs(t, err, context.Canceled, "the hold stands, but this context is over")
	inner, err := m.Acquire(outer.Context())
	require.NoError(t, err)
	require.NoError(t, inner.Release())
	_, err = m.Acquire(inner.Context())
	require.ErrorIs(t, err, recipes.ErrReleased, "so is that of an inner lease")
	require.NoError(t, outer.Context().Err())
	require.Len(t, children(t, path), 1)
	require.NoError(t, outer.Release())
}

// What a hold is known by is the client, the path and the recipe.
func TestReentryKey(t *testing.T) {
	client, path := direct(t), lockPath(t)
	outer := acquire(t, newMutex(t, client, path))

	twin, err := newMutex(t, client, path).Acquire(outer.Context())
	require.NoError(t, err, "another mutex value of the same path")
	require.Equal(t, outer.FencingToken(), twin.FencingToken())
	require.NoError(t, twin.Release())

	_, err = newMutex(t, direct(t), path).TryAcquire(outer.Context())
	require.ErrorIs(t, err, recipes.ErrNotAcquired, "another client is another contender")

	elsewhere, err := newMutex(t, client, path+"-other").TryAcquire(outer.Context())
	require.NoError(t, err)
	require.NotEqual(t, outer.FencingToken(), elsewhere.FencingToken(), "another path is another lock")
	both, err := newMutex(t, client, path).Acquire(elsewhere.Context())
	require.NoError(t, err, "a context may carry several holds")
	require.Equal(t, outer.FencingToken(), both.FencingToken())
	require.NoError(t, both.Release())
	require.NoError(t, elsewhere.Release())

	require.NoError(t, outer.Release())
	require.Empty(t, children(t, path))
	require.Empty(t, children(t, path+"-other"))
}

// Re-entry needs no connection, nor does any release but the last.
func TestReentryWithoutAConnection(t *testing.T) {
	client, proxy := proxied(t, recipes.WithSessionTimeout(longSession))
	path := lockPath(t)
	m := newMutex(t, client, path)
	outer := acquire(t, m)
	proxy.Refuse(true)
	proxy.Cut()
	eventually(t, func() bool { return client.State() == recipes.Suspended }, "the loss of the connection")
	inner, err := m.Acquire(outer.Context())
	require.NoError(t, err)
	require.Equal(t, outer.FencingToken(), inner.FencingToken())
	require.NoError(t, inner.Release())
	require.NoError(t, outer.Context().Err())
	proxy.Refuse(false)
	require.NoError(t, outer.Release(), "it waits for the connection")
	require.Empty(t, children(t, path))
}

// A lease's context has the values of the context that acquired, not its end.
func TestLeaseContext(t *testing.T) {
	type key struct{}
	path := lockPath(t)
	m := newMutex(t, direct(t), path)
	bounded, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "outer"), patience)
	outer, err := m.Acquire(bounded)
	require.NoError(t, err)
	inner, err := m.Acquire(context.WithValue(outer.Context(), key{}, "inner"))
	require.NoError(t, err)
	cancel()
	for lease, value := range map[*recipes.Lease]string{outer: "outer", inner: "inner"} {
		require.NoError(t, lease.Context().Err())
		_, bounded := lease.Context().Deadline()
		require.False(t, bounded)
		require.Equal(t, value, lease.Context().Value(key{}))
	}
	require.Len(t, children(t, path), 1)
	require.NoError(t, outer.Release())
	require.NoError(t, inner.Context().Err())
	require.NoError(t, inner.Release())
}

// Goroutines that share the context share the hold: they enter and leave as they
// like, also while its first owner leaves, and the last of them all ends it.
func TestConcurrentReentry(t *testing.T) {
	client, proxy := proxied(t, recipes.WithSessionTimeout(longSession))
	path := lockPath(t)
	m := newMutex(t, client, path)
	for range 20 {
		outer := acquire(t, m)
		proxy.ResetCounts()
		errs := make(chan error, 32)
		var busy sync.WaitGroup
		busy.Add(cap(errs))
		for range cap(errs) {
			go func() { errs <- enterOften(m, outer, busy.Done) }() // joined through errs
		}
		busy.Wait()
		require.NoError(t, outer.Release())
		for range cap(errs) {
			if err := <-errs; err != nil {
				require.ErrorIs(t, err, recipes.ErrReleased, "only the end of the hold keeps anyone out")
			}
		}
		require.ErrorIs(t, ended(t, outer), recipes.ErrReleased)
		_, err := m.Acquire(context.WithoutCancel(outer.Context()))
		require.ErrorIs(t, err, recipes.ErrReleased)
		require.Equal(t, map[string]int{"delete": 1}, requests(proxy))
		require.Empty(t, children(t, path))
	}
}

// enterOften enters and leaves a hold, nested every other time, and calls busy half way.
func enterOften(m *mutex.InterProcessMutex, outer *recipes.Lease, busy func()) error {
	once := sync.OnceFunc(busy)
	defer once()
	shared := context.WithoutCancel(outer.Context())
	for i := range 20 {
		if i == 10 {
			once()
		}
		lease, err := m.Acquire(shared)
		if err != nil {
			return err
		}
		if lease.FencingToken() != outer.FencingToken() || lease.Context().Err() != nil {
			return fmt.Errorf("not a lease of the shared hold: %v", lease.Path())
		}
		if i%2 == 1 {
			nested, err := m.Acquire(lease.Context())
			if err != nil {
				return fmt.Errorf("refused beside a lease that stands: %v", err) //nolint:errorlint // must not match
			}
			if err := nested.Release(); err != nil {
				return err
			}
		}
		if err := lease.Release(); err != nil {
			return err
		}
	}
	return nil
}
