package mutex_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Do holds the lock while fn runs, and not longer; its error is fn's.
func TestDo(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client())
		var lease *recipes.Lease
		for _, want := range []error{nil, errOfTest} {
			err := m.Do(f.Context(), func(ctx context.Context, l *recipes.Lease) error {
				lease = l
				require.NoError(f, ctx.Err())
				require.Equal(f, []string{l.Path()}, f.queue())
				_, err := m.TryAcquire(f.Context())
				require.ErrorIs(f, err, recipes.ErrNotAcquired)
				return want
			})
			require.Equal(f, want, err, "exactly fn's error")
			require.ErrorIs(f, context.Cause(lease.Context()), recipes.ErrReleased)
			require.ErrorIs(f, lease.Release(), recipes.ErrNotHeld)
			require.Empty(f, f.queue())
		}
	})
}

// A loss ends fn's context with its cause, and Do tells it beside fn's own error.
func TestDoTellsALoss(t *testing.T) {
	for loss, lose := range map[error]func(f *fixture, client *recipes.Client, lease *recipes.Lease){
		recipes.ErrSessionLost: func(f *fixture, client *recipes.Client, _ *recipes.Lease) { f.expireUnheard(client) },
		recipes.ErrNodeDeleted: func(f *fixture, _ *recipes.Client, lease *recipes.Lease) { f.srv.Delete(lease.Path()) },
		recipes.ErrClosed:      func(f *fixture, client *recipes.Client, _ *recipes.Lease) { require.NoError(f, client.Close()) },
	} {
		for name, own := range map[string]error{"": nil, ", and an error": errOfTest} {
			t.Run(loss.Error()+name, func(t *testing.T) {
				inBubble(t, func(f *fixture) {
					client := f.troubled()
					m := f.mutex(client)
					err := m.Do(f.Context(), func(ctx context.Context, lease *recipes.Lease) error {
						lose(f, client, lease)
						require.ErrorIs(f, f.cause(lease), loss)
						<-ctx.Done()
						require.ErrorIs(f, context.Cause(ctx), loss)
						return own
					})
					require.ErrorIs(f, err, loss)
					if own != nil {
						require.ErrorIs(f, err, own)
					}
					require.Empty(f, f.queue())
					if loss != recipes.ErrClosed { //nolint:errorlint // a table's value
						require.NoError(f, m.Do(f.Context(), nothing), "the same value works again")
					}
				})
			})
		}
	}
}

func nothing(context.Context, *recipes.Lease) error { return nil }

// A panic of fn reaches Do's caller, after the release.
func TestDoPanics(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client())
		var inside *recipes.Lease
		require.PanicsWithValue(f, errOfTest, func() {
			defer func() { require.Empty(f, f.queue(), "the lock is free while the panic unwinds") }()
			_ = m.Do(f.Context(), func(_ context.Context, lease *recipes.Lease) error {
				inside = lease
				require.Len(f, f.queue(), 1)
				panic(errOfTest)
			})
		})
		require.ErrorIs(f, context.Cause(inside.Context()), recipes.ErrReleased)
	})
}

// runtime.Goexit, as of a failed test, releases as well.
func TestDoGoexit(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client())
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
		require.Empty(f, f.queue())
	})
}

// The context of fn ends with Do's own, with the same cause; the lock stays fn's
// until it returns.
func TestDoEndsWithItsContext(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client())
		ctx, cancel := context.WithCancelCause(f.Context())
		err := m.Do(ctx, func(inner context.Context, lease *recipes.Lease) error {
			cancel(errOfTest)
			<-inner.Done()
			require.ErrorIs(f, context.Cause(inner), errOfTest)
			require.NoError(f, lease.Context().Err(), "the lease itself goes on")
			require.Len(f, f.queue(), 1)
			again, err := m.Acquire(lease.Context())
			require.NoError(f, err, "for clean-up the lease's own context still re-enters")
			require.NoError(f, again.Release())
			return context.Cause(inner)
		})
		require.ErrorIs(f, err, errOfTest)
		require.NotErrorIs(f, err, recipes.ErrReleased)
		require.Empty(f, f.queue())

		ran := false
		err = m.Do(ctx, func(context.Context, *recipes.Lease) error { ran = true; return nil })
		require.ErrorIs(f, err, context.Canceled)
		require.ErrorIs(f, err, errOfTest)
		require.False(f, ran, "no lock, no fn")
	})
}

// fn's context has the deadline of Do's, and ends as such a context does.
func TestDoPassesTheDeadlineOn(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client())
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
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client())
		var next *recipes.Lease
		require.NoError(f, m.Do(f.Context(), func(ctx context.Context, lease *recipes.Lease) error {
			require.NoError(f, lease.Release())
			require.ErrorIs(f, context.Cause(ctx), recipes.ErrReleased)
			next = acquire(f.T, m)
			return nil
		}))
		f.stands(next) // Do releases its own lease alone
		require.Len(f, f.queue(), 1)
		require.NoError(f, next.Release())
	})
}

// A release that is not confirmed is an error of Do, and the znode goes later.
func TestDoTellsAFailedRelease(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.troubled(recipes.WithSessionTimeout(time.Minute), recipes.WithOperationTimeout(time.Second))
		err := f.mutex(client).Do(f.Context(), func(context.Context, *recipes.Lease) error {
			f.srv.Freeze(f.srv.Addr())
			return errOfTest
		})
		require.ErrorIs(f, err, errOfTest)
		var failed *recipes.OpError
		require.ErrorAs(f, err, &failed)
		require.Equal(f, "lease: release", failed.Op)
		require.Len(f, f.queue(), 1)
		f.srv.Heal()
		pass(time.Minute / 2)
		require.Empty(f, f.queue(), "the deletion goes on")
	})
}
