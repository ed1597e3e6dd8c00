package multilock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
)

// A lock of another package that panics, ends its goroutine, or returns nothing does not block the locks acquired before it.
func TestLockerThatBreaks(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		breaking := func(breaks func()) *multilock.InterProcessMultiLock {
			m, err := multilock.New(mutexOn(b, client, all[0]), lockFunc(func(context.Context) (*recipes.Lease, error) {
				require.Len(b, held(b), 1)
				breaks()
				return nil, nil
			}))
			require.NoError(b, err)
			return m
		}
		for name, acquire := range map[string]func(m *multilock.InterProcessMultiLock) error{
			"acquire": func(m *multilock.InterProcessMultiLock) error { _, err := m.Acquire(b.Context()); return err },
			"try":     func(m *multilock.InterProcessMultiLock) error { _, err := m.TryAcquire(b.Context()); return err },
			"do": func(m *multilock.InterProcessMultiLock) error {
				return m.Do(b.Context(), func(context.Context, *multilock.Lease) error { return nil })
			},
		} {
			require.PanicsWithValue(b, "broken", func() { _ = acquire(breaking(func() { panic("broken") })) }, name)
			bubble.Pass(bubble.Moment)
			require.Empty(b, held(b), name)
			err := acquire(breaking(func() {}))
			require.ErrorContains(b, err, "lock 2 of 2: the Locker returned neither a lease nor an error", name)
			require.Empty(b, held(b), name)
		}
	})
}
