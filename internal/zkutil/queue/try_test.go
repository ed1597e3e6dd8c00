package queue_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A try at a held lock fails at once, and its znode is deleted when it returns.
func TestTryHeld(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		holder := f.Mutex(f.Client())
		lease := bubble.Acquire(f.T, holder.Acquire)
		for name, m := range map[string]*mutex.InterProcessMutex{"same value": holder, "other client": f.Mutex(f.Client())} {
			for range 10 {
				_, err := m.TryAcquire(f.Context())
				require.ErrorIs(f, err, recipes.ErrNotAcquired, name)
				var failed *recipes.OpError
				require.ErrorAs(f, err, &failed, name)
				require.Equal(f, "mutex: try acquire", failed.Op, name)
				require.Equal(f, locks.Path, failed.Path, name)
				wait, isWait := failed.Err.(*recipes.WaitError) //nolint:errorlint // directly below the OpError
				require.True(f, isWait, name)
				require.Equal(f, recipes.ErrNotAcquired, wait.Err, name)
				require.Equal(f, 2, wait.Position, name)
				require.Equal(f, lease.Path(), wait.Holder.Path, name)
				require.Len(f, f.Contenders(), 1, name)
			}
		}
		require.NoError(f, lease.Release())
		free, err := holder.TryAcquire(f.Context())
		require.NoError(f, err)
		require.Greater(f, free.FencingToken(), lease.FencingToken())
		require.NoError(f, free.Release())
		require.Empty(f, f.Contenders())
	})
}

// A try does not overtake those who wait.
func TestTryBehindAWaiter(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		first := bubble.Acquire(f.T, m.Acquire)
		waiter := f.Waiting(f.Context(), m)
		require.NoError(f, first.Release())
		_, err := f.Mutex(f.Client()).TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		require.NoError(f, bubble.Granted(f, waiter).Release())
		require.Empty(f, f.Contenders())
	})
}

// Only a try that is not granted waits for the deletion of its znode. A failure is reported at once.
func TestWhoWaitsForTheDeletion(t *testing.T) {
	for name, isRefused := range map[string]bool{"a try that is not granted": false, "a list that is refused": true} {
		t.Run(name, func(t *testing.T) {
			locks.Run(t, func(f *locks.Fixture) {
				const late = time.Second
				bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
				client := f.Troubled()
				session := client.Conn().SessionID()
				f.Srv.Inject(func(r zktest.Request) zktest.Fault {
					switch {
					case r.Session != session:
					case r.Op == zktest.OpGetChildren2 && isRefused:
						return zktest.Fault{Refusal: zktest.RefuseNoAuth}
					case r.Op == zktest.OpDelete:
						return zktest.Fault{Delay: late}
					}
					return zktest.Fault{}
				})
				began := time.Now()
				_, err := f.Mutex(client).TryAcquire(f.Context())
				took := time.Since(began)
				if isRefused {
					require.ErrorIs(f, err, zk.ErrNoAuth)
					require.Zero(f, took)
				} else {
					require.ErrorIs(f, err, recipes.ErrNotAcquired)
					require.Equal(f, late, took)
				}
				bubble.Pass(2 * late)
				require.Len(f, f.Contenders(), 1)
			})
		})
	}
}

// A try whose context is over does not try.
func TestTryWithAnEndedContext(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		ctx, cancel := context.WithCancelCause(f.Context())
		cancel(locks.ErrWork)
		log := f.Srv.Observe()
		_, err := m.TryAcquire(ctx)
		require.ErrorIs(f, err, context.Canceled)
		require.ErrorIs(f, err, locks.ErrWork)
		require.Empty(f, log.Requests())
	})
}

// However many try at once, one at most gets in, and nothing is left in the end.
func TestTryStorm(t *testing.T) {
	const tries = 20
	locks.Run(t, func(f *locks.Fixture) {
		values := []*mutex.InterProcessMutex{f.Mutex(f.Client()), f.Mutex(f.Troubled())}
		var section judge.Section
		errs := make(chan error, 32)
		var goroutines sync.WaitGroup
		for i := range cap(errs) {
			goroutines.Go(func() {
				for range tries {
					if err := tryOnce(f.Context(), values[i%len(values)], &section); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		goroutines.Wait()
		require.Empty(f, errs)
		require.NoError(f, section.Err())
		require.Positive(f, section.Entered())
		require.Empty(f, f.Contenders())
		f.Logf("%d of %d tries got the lock", section.Entered(), tries*cap(errs))
	})
}

// tryOnce holds the lock for a tenth of a moment, unless another client has it.
func tryOnce(ctx context.Context, m *mutex.InterProcessMutex, section *judge.Section) error {
	lease, err := m.TryAcquire(ctx)
	if errors.Is(err, recipes.ErrNotAcquired) {
		return nil
	}
	if err != nil {
		return err
	}
	section.Enter(lease.FencingToken())
	bubble.Pause(bubble.Moment / 10)
	section.Leave()
	return lease.Release()
}
