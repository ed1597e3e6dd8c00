package queue_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Hundreds of callers whose requests are refused do not delay other paths of their client: neither newcomers, nor waiters
// that have to read the queue again.
func TestRefusalsOnAnotherPath(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		ctx, cancel := context.WithCancel(f.Context())
		ahead := f.Waiting(ctx, f.Mutex(f.Client()))
		waiter := f.Waiting(f.Context(), f.Mutex(client))
		defer f.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if strings.HasPrefix(r.Path, "/refused") {
				return zktest.Fault{Refusal: zktest.RefuseMarshallingFail} // may pass, for all that the client knows
			}
			return zktest.Fault{}
		})()
		refused := locks.MutexOn(f.T, client, "/refused")
		crowd := make([]<-chan bubble.Outcome[*recipes.Lease], 400)
		for i := range crowd {
			crowd[i] = bubble.Start(f.Context(), refused.Acquire)
		}
		bubble.Pass(bubble.Moment)
		began := time.Now()
		cancel()
		require.Error(f, (<-ahead).Err)
		require.NoError(f, holder.Release())
		require.NoError(f, bubble.Granted(f, waiter).Release())
		require.NoError(f, bubble.Acquire(f.T, locks.MutexOn(f.T, client, "/other").Acquire).Release())
		require.Less(f, time.Since(began), time.Second)
		for _, done := range crowd {
			require.Error(f, (<-done).Err)
		}
	})
}
