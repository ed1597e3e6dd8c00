package multilock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
)

var errOdd = errors.New("odd")

// A Locker that returns a lease beside an error, a lease that was never acquired, or one that is already over is an error, and
// leaves nothing behind.
func TestLockerWithAnOddLease(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		for name, test := range map[string]struct {
			second lockFunc
			want   string
		}{
			"lease and error": {func(ctx context.Context) (*recipes.Lease, error) {
				lease, err := mutexOn(b, client, all[1]).Acquire(ctx)
				return lease, errors.Join(err, errOdd)
			}, "lock 2 of 3: odd"},
			"zero lease": {func(context.Context) (*recipes.Lease, error) {
				return &recipes.Lease{}, nil
			}, "lock 2 of 3: the Locker returned neither a lease nor an error"},
			"zero lease and error": {func(context.Context) (*recipes.Lease, error) {
				return &recipes.Lease{}, errOdd
			}, "lock 2 of 3: odd"},
			"released lease": {func(ctx context.Context) (*recipes.Lease, error) {
				lease, err := mutexOn(b, client, all[1]).Acquire(ctx)
				if err == nil {
					err = lease.Release()
				}
				return lease, err
			}, "lost a lock before lock 2 of 3 was acquired: released"},
		} {
			never := lockFunc(func(context.Context) (*recipes.Lease, error) { panic("the third lock is not asked for") })
			m, err := multilock.New(mutexOn(b, client, all[0]), test.second, never)
			require.NoError(b, err)
			_, err = m.Acquire(b.Context())
			require.ErrorContains(b, err, test.want, name)
			_, err = m.TryAcquire(b.Context())
			require.ErrorContains(b, err, test.want, name)
			bubble.Pass(bubble.Moment)
			require.Empty(b, held(b), name)
		}
	})
}

// A nil function is refused like a nil pointer.
func TestNilFunctionAsLocker(t *testing.T) {
	_, err := multilock.New(lockFunc(nil))
	require.ErrorIs(t, err, recipes.ErrInvalidArgument)
	require.ErrorContains(t, err, "lock 1 of 1 is nil")
}

// Two locks on one path are entered once and again, and a Locker may return the same lease twice.
func TestSameLockTwice(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		var lease *recipes.Lease
		cached := func(ctx context.Context) (_ *recipes.Lease, err error) {
			if lease == nil {
				lease, err = mutexOn(b, client, all[1]).Acquire(ctx)
			}
			return lease, err
		}
		m, err := multilock.New(mutexOn(b, client, all[0]), mutexOn(b, client, all[0]), lockFunc(cached), lockFunc(cached))
		require.NoError(b, err)
		both, err := m.Acquire(b.Context())
		require.NoError(b, err)
		require.Len(b, held(b), 2)
		require.NoError(b, both.Release())
		require.Empty(b, held(b))
	})
}
