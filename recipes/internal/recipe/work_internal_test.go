package recipe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who asks the context of the work after the end of the lease hears of it, also before anything that has to be scheduled has run.
func TestWorkContextEndsWithTheLeaseAtOnce(t *testing.T) {
	loss := errors.New("session lost")
	for range 1000 {
		lease, lose := context.WithCancelCause(t.Context())
		work, end := newWorkContext(t.Context(), lease)
		require.NoError(t, work.Err())
		lose(loss)
		require.ErrorIs(t, work.Err(), context.Canceled)
		require.Equal(t, loss, context.Cause(work))
		end(nil)

		lease, lose = context.WithCancelCause(t.Context())
		work, end = newWorkContext(t.Context(), lease)
		lose(loss)
		require.Equal(t, loss, context.Cause(work), "asked first")
		end(nil)
	}
}

// The first end counts, of the lease or of the caller's context.
func TestWorkContextKeepsItsFirstCause(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	lease, lose := context.WithCancelCause(t.Context())
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Nanosecond, first)
	defer cancel()
	<-ctx.Done()
	work, end := newWorkContext(ctx, lease)
	lose(second)
	require.Equal(t, context.DeadlineExceeded, work.Err())
	require.Equal(t, first, context.Cause(work))
	end(second)
	require.Equal(t, first, context.Cause(work))
}
