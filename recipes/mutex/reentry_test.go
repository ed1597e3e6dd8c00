package mutex_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// permutations of the order in which three leases can be released.
var permutations = [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// Three entries of one hold cost the requests of one, and the last release deletes the znode, in any order of the
// releases.
func TestReentry(t *testing.T) {
	for _, order := range permutations {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			locks.Run(t, func(f *locks.Fixture) {
				m := f.Mutex(f.Client())
				first := bubble.Acquire(f.T, m.Acquire)
				log := f.Srv.Observe()
				leases := []*recipes.Lease{first}
				for range 2 { // each entered with the context of the one before
					lease, err := m.Acquire(leases[len(leases)-1].Context())
					require.NoError(f, err)
					leases = append(leases, lease)
				}
				for _, lease := range leases {
					require.Equal(f, first.FencingToken(), lease.FencingToken())
					require.Equal(f, first.Path(), lease.Path())
					require.NoError(f, lease.Context().Err())
				}
				require.Len(f, f.Contenders(), 1)
				for released, i := range order {
					require.Empty(f, log.Requests(), "requests of re-entry and of all but the last release")
					require.Len(f, f.Contenders(), 1)
					require.NoError(f, leases[i].Release())
					require.ErrorIs(f, context.Cause(leases[i].Context()), recipes.ErrReleased)
					require.ErrorIs(f, leases[i].Release(), recipes.ErrNotHeld)
					for _, other := range order[released+1:] {
						require.NoError(f, leases[other].Context().Err(), "the other leases stay")
					}
				}
				require.Equal(f, []zktest.Op{zktest.OpDelete}, bubble.Operations(log))
				require.Empty(f, f.Contenders())
			})
		})
	}
}

// TryAcquire and Do re-enter too.
func TestReentryOfTryAndDo(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		outer := bubble.Acquire(f.T, m.Acquire)
		log := f.Srv.Observe()
		tried, err := m.TryAcquire(outer.Context())
		require.NoError(f, err)
		require.Equal(f, outer.FencingToken(), tried.FencingToken())
		require.NoError(f, m.Do(tried.Context(), func(ctx context.Context, lease *recipes.Lease) error {
			require.Equal(f, outer.FencingToken(), lease.FencingToken())
			deepest, err := m.Acquire(ctx)
			require.NoError(f, err)
			require.Equal(f, outer.FencingToken(), deepest.FencingToken())
			return deepest.Release()
		}))
		require.NoError(f, outer.Release())
		require.Empty(f, log.Requests())
		require.NoError(f, tried.Release())
		require.Empty(f, f.Contenders())
	})
}

// Every derived context carries the hold.
func TestReentryWithDerivedContexts(t *testing.T) {
	type key struct{}
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		outer := bubble.Acquire(f.T, m.Acquire)
		canceled, cancel := context.WithCancel(outer.Context())
		for name, ctx := range map[string]context.Context{
			"value":         context.WithValue(outer.Context(), key{}, 1),
			"cancel":        canceled,
			"withoutCancel": context.WithoutCancel(outer.Context()),
		} {
			inner, err := m.Acquire(ctx)
			require.NoError(f, err, name)
			require.Equal(f, outer.FencingToken(), inner.FencingToken(), name)
			require.NoError(f, inner.Release(), name)
		}
		cancel()
		_, err := m.Acquire(canceled)
		require.ErrorIs(f, err, context.Canceled, "the hold stands, but this context is over")
		inner, err := m.Acquire(outer.Context())
		require.NoError(f, err)
		require.NoError(f, inner.Release())
		_, err = m.Acquire(inner.Context())
		require.ErrorIs(f, err, recipes.ErrReleased, "so is that of an inner lease")
		f.Stands(outer)
		require.Len(f, f.Contenders(), 1)
		require.NoError(f, outer.Release())
	})
}

// What a hold is known by is the client, the path and the recipe.
func TestReentryKey(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		outer := bubble.Acquire(f.T, f.Mutex(client).Acquire)

		twin, err := f.Mutex(client).Acquire(outer.Context())
		require.NoError(f, err, "another mutex value of the same path")
		require.Equal(f, outer.FencingToken(), twin.FencingToken())
		require.NoError(f, twin.Release())

		_, err = f.Mutex(f.Client()).TryAcquire(outer.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired, "another client is another contender")

		elsewhere, err := locks.MutexOn(f.T, client, locks.Path+"-other").TryAcquire(outer.Context())
		require.NoError(f, err)
		require.NotEqual(f, outer.FencingToken(), elsewhere.FencingToken(), "another path is another lock")
		both, err := f.Mutex(client).Acquire(elsewhere.Context())
		require.NoError(f, err, "a context may carry several holds")
		require.Equal(f, outer.FencingToken(), both.FencingToken())
		require.NoError(f, both.Release())
		require.NoError(f, elsewhere.Release())

		require.NoError(f, outer.Release())
		require.Empty(f, f.Contenders())
		require.Empty(f, f.Srv.Children(locks.Path+"-other"))
	})
}

// Re-entry needs no connection, nor does any release but the last.
func TestReentryWithoutAConnection(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled(recipes.WithSessionTimeout(time.Minute))
		m := f.Mutex(client)
		outer := bubble.Acquire(f.T, m.Acquire)
		over := f.Outage()
		require.Equal(f, recipes.Suspended, client.State())
		inner, err := m.Acquire(outer.Context())
		require.NoError(f, err)
		require.Equal(f, outer.FencingToken(), inner.FencingToken())
		require.NoError(f, inner.Release())
		require.NoError(f, outer.Context().Err())
		over()
		require.NoError(f, outer.Release(), "it waits for the connection")
		require.Empty(f, f.Contenders())
	})
}

// A lease's context has the values of the context of Acquire, but not its end.
func TestLeaseContext(t *testing.T) {
	type key struct{}
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		ctx, cancel := context.WithTimeout(context.WithValue(f.Context(), key{}, "outer"), time.Minute)
		outer, err := m.Acquire(ctx)
		require.NoError(f, err)
		inner, err := m.Acquire(context.WithValue(outer.Context(), key{}, "inner"))
		require.NoError(f, err)
		cancel()
		for lease, value := range map[*recipes.Lease]string{outer: "outer", inner: "inner"} {
			f.Stands(lease)
			_, bounded := lease.Context().Deadline()
			require.False(f, bounded)
			require.Equal(f, value, lease.Context().Value(key{}))
		}
		require.Len(f, f.Contenders(), 1)
		require.NoError(f, outer.Release())
		f.Stands(inner)
		require.NoError(f, inner.Release())
	})
}

// Goroutines that share the context share the hold. They enter and leave in any order, also while its first owner
// leaves, and the last of them ends it.
func TestConcurrentReentry(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		for range 20 {
			outer := bubble.Acquire(f.T, m.Acquire)
			log := f.Srv.Observe()
			errs := make(chan error, 32)
			var busy sync.WaitGroup
			busy.Add(cap(errs))
			for range cap(errs) {
				go func() { errs <- enterOften(m, outer, busy.Done) }() // joined through errs
			}
			busy.Wait()
			require.NoError(f, outer.Release())
			for range cap(errs) {
				if err := <-errs; err != nil {
					require.ErrorIs(f, err, recipes.ErrReleased, "only the end of the hold keeps anyone out")
				}
			}
			require.ErrorIs(f, f.Cause(outer), recipes.ErrReleased)
			_, err := m.Acquire(context.WithoutCancel(outer.Context()))
			require.ErrorIs(f, err, recipes.ErrReleased)
			require.Equal(f, []zktest.Op{zktest.OpDelete}, bubble.Operations(log))
			require.Empty(f, f.Contenders())
			log.Stop()
		}
	})
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
