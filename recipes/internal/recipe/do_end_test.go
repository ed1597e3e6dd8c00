package recipe_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Do holds the lock while fn runs, and not longer; its error is fn's.
func TestDo(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		var lease *recipes.Lease
		for _, want := range []error{nil, locks.ErrWork} {
			err := m.Do(f.Context(), func(ctx context.Context, l *recipes.Lease) error {
				lease = l
				require.NoError(f, ctx.Err())
				require.Equal(f, []string{l.Path()}, f.Contenders())
				_, err := m.TryAcquire(f.Context())
				require.ErrorIs(f, err, recipes.ErrNotAcquired)
				return want
			})
			require.Equal(f, want, err, "exactly fn's error")
			require.ErrorIs(f, context.Cause(lease.Context()), recipes.ErrReleased)
			require.ErrorIs(f, lease.Release(), recipes.ErrNotHeld)
			require.Empty(f, f.Contenders())
		}
	})
}

// A loss ends fn's context with its cause, and Do returns the loss joined with fn's error.
func TestDoReturnsALoss(t *testing.T) {
	for loss, lose := range map[error]func(f *locks.Fixture, client *recipes.Client, lease *recipes.Lease){
		recipes.ErrSessionLost: func(f *locks.Fixture, client *recipes.Client, _ *recipes.Lease) { f.ExpireUnheard(client) },
		recipes.ErrNodeDeleted: func(f *locks.Fixture, _ *recipes.Client, lease *recipes.Lease) { f.Srv.Delete(lease.Path()) },
		recipes.ErrClosed:      func(f *locks.Fixture, client *recipes.Client, _ *recipes.Lease) { require.NoError(f, client.Close()) },
	} {
		for name, own := range map[string]error{"": nil, ", and an error": locks.ErrWork} {
			t.Run(loss.Error()+name, func(t *testing.T) {
				locks.Run(t, func(f *locks.Fixture) {
					client := f.Troubled()
					m := f.Mutex(client)
					err := m.Do(f.Context(), func(ctx context.Context, lease *recipes.Lease) error {
						lose(f, client, lease)
						require.ErrorIs(f, f.Cause(lease), loss)
						<-ctx.Done()
						require.ErrorIs(f, context.Cause(ctx), loss)
						return own
					})
					require.ErrorIs(f, err, loss)
					if own != nil {
						require.ErrorIs(f, err, own)
					}
					require.Empty(f, f.Contenders())
					if loss != recipes.ErrClosed { //nolint:errorlint // a table's value
						require.NoError(f, m.Do(f.Context(), locks.Nothing), "the same value works again")
					}
				})
			})
		}
	}
}

// A panic of fn reaches Do's caller, after the release.
func TestDoPanics(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		var inside *recipes.Lease
		require.PanicsWithValue(f, locks.ErrWork, func() {
			defer func() { require.Empty(f, f.Contenders(), "the lock is free while the panic unwinds") }()
			_ = m.Do(f.Context(), func(_ context.Context, lease *recipes.Lease) error {
				inside = lease
				require.Len(f, f.Contenders(), 1)
				panic(locks.ErrWork)
			})
		})
		require.ErrorIs(f, context.Cause(inside.Context()), recipes.ErrReleased)
	})
}

// runtime.Goexit, as of a failed test, releases as well.
func TestDoGoexit(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		ended, after := make(chan struct{}), false
		go func() { // joined through ended
			defer close(ended)
			_ = m.Do(f.Context(), func(context.Context, *recipes.Lease) error {
				runtime.Goexit()
				return nil
			})
			after = true
		}()
		<-ended
		require.False(f, after, "the goroutine has ended in Do")
		require.Empty(f, f.Contenders())
	})
}

// The context of fn ends with Do's own, with the same cause; the lock stays fn's
// until it returns.
func TestDoEndsWithItsContext(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		ctx, cancel := context.WithCancelCause(f.Context())
		err := m.Do(ctx, func(inner context.Context, lease *recipes.Lease) error {
			cancel(locks.ErrWork)
			<-inner.Done()
			require.ErrorIs(f, context.Cause(inner), locks.ErrWork)
			require.NoError(f, lease.Context().Err(), "the lease itself goes on")
			require.Len(f, f.Contenders(), 1)
			again, err := m.Acquire(lease.Context())
			require.NoError(f, err, "for clean-up the lease's own context still re-enters")
			require.NoError(f, again.Release())
			return context.Cause(inner)
		})
		require.ErrorIs(f, err, locks.ErrWork)
		require.NotErrorIs(f, err, recipes.ErrReleased)
		synctest.Wait() // the context is over, so Do did not wait for the deletion
		require.Empty(f, f.Contenders())

		ran := false
		err = m.Do(ctx, func(context.Context, *recipes.Lease) error { ran = true; return nil })
		require.ErrorIs(f, err, context.Canceled)
		require.ErrorIs(f, err, locks.ErrWork)
		require.False(f, ran, "no lock, no fn")
	})
}

// fn's context has the deadline of Do's, and ends as such a context does.
func TestDoPassesTheDeadlineOn(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		outer, cancel := context.WithTimeout(f.Context(), 300*time.Millisecond)
		defer cancel()
		err := m.Do(outer, func(ctx context.Context, _ *recipes.Lease) error {
			want, _ := outer.Deadline()
			got, ok := ctx.Deadline()
			require.True(f, ok)
			require.Equal(f, want, got)
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(f, err, context.DeadlineExceeded)
		require.ErrorContains(f, m.Do(f.Context(), nil), "nil function")
	})
}

// fn may release early.
func TestDoReleasedByFn(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		var next *recipes.Lease
		require.NoError(f, m.Do(f.Context(), func(ctx context.Context, lease *recipes.Lease) error {
			require.NoError(f, lease.Release())
			require.ErrorIs(f, ctx.Err(), context.Canceled)
			require.ErrorIs(f, context.Cause(ctx), recipes.ErrReleased)
			next = bubble.Acquire(f.T, m.Acquire)
			return nil
		}))
		f.Stands(next) // Do releases its own lease alone
		require.Len(f, f.Contenders(), 1)
		require.NoError(f, next.Release())
	})
}

// A release that is unconfirmed within the operation timeout is no error of Do, and the znode is deleted later.
func TestDoLeavesADeletionToTheBackground(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Troubled(recipes.WithSessionTimeout(time.Minute), recipes.WithOperationTimeout(time.Second))
		start := time.Now()
		err := f.Mutex(client).Do(f.Context(), func(context.Context, *recipes.Lease) error {
			f.Srv.Freeze(f.Srv.Addr())
			return locks.ErrWork
		})
		require.Equal(f, locks.ErrWork, err)
		require.Equal(f, time.Second, time.Since(start))
		require.Len(f, f.Contenders(), 1)
		f.Srv.Heal()
		bubble.Pass(time.Minute / 2)
		require.Empty(f, f.Contenders(), "the deletion goes on")
	})
}
