package queue_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Hundreds of callers whose requests are refused hold up nobody on other paths of their client: neither who comes, nor who
// waits and has to look at the queue again.
func TestRefusalsOnAnotherPath(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		holder := locks.Acquire(f.T, f.Mutex(f.Client()))
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
		crowd := make([]<-chan locks.Result, 400)
		for i := range crowd {
			crowd[i] = locks.Acquiring(f.Context(), refused)
		}
		bubble.Pass(bubble.Moment)
		began := time.Now()
		cancel()
		require.Error(f, (<-ahead).Err)
		require.NoError(f, holder.Release())
		require.NoError(f, f.Granted(waiter).Release())
		require.NoError(f, locks.Acquire(f.T, locks.MutexOn(f.T, client, "/other")).Release())
		require.Less(f, time.Since(began), time.Second)
		for _, done := range crowd {
			require.Error(f, (<-done).Err)
		}
	})
}
