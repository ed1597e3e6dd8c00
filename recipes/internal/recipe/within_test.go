package recipe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Without time to wait, an acquisition is a try with the caller's context. Otherwise its context ends after the wait, and with the call.
func TestWithin(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var inner context.Context
		acquire := func(ctx context.Context) (*recipes.Lease, error) {
			inner = ctx //nolint:fatcontext // its end is the subject
			return nil, errAcquire
		}
		try := func(ctx context.Context) (*recipes.Lease, error) {
			require.Equal(t, t.Context(), ctx)
			return nil, errTry
		}
		for wait, want := range map[time.Duration]error{-time.Second: errTry, 0: errTry, 1: errAcquire, time.Hour: errAcquire} {
			_, err := Within(wait, acquire, try)(t.Context())
			require.ErrorIs(t, err, want)
		}
		require.ErrorIs(t, inner.Err(), context.Canceled, "it is released")
		wait := func(ctx context.Context) (*recipes.Lease, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		start := time.Now()
		_, err := Within(time.Hour, wait, try)(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour, time.Since(start))
	})
}

var errAcquire, errTry = errors.New("acquire"), errors.New("try")

// The errors between the parts of a recipe have the text of what they wrap.
func TestTextsOfInnerErrors(t *testing.T) {
	err := &NotCalledError{errTry}
	require.EqualError(t, err, "try")
	require.ErrorIs(t, err, errTry)
}
