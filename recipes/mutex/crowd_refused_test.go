package mutex_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Hundreds of callers whose requests are refused hold up nobody on other paths of their client: neither who comes, nor who
// waits and has to look at the queue again.
func TestRefusalsOnAnotherPath(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		holder := acquire(f.T, f.mutex(f.client()))
		ctx, cancel := context.WithCancel(f.Context())
		ahead := f.waiting(ctx, f.mutex(f.client()))
		waiter := f.waiting(f.Context(), f.mutex(client))
		defer f.srv.Inject(func(r zktest.Request) zktest.Fault {
			if strings.HasPrefix(r.Path, "/refused") {
				return zktest.Fault{Refusal: zktest.RefuseMarshallingFail} // may pass, for all that the client knows
			}
			return zktest.Fault{}
		})()
		refused := mutexOn(f.T, client, "/refused")
		crowd := make([]<-chan result, 400)
		for i := range crowd {
			crowd[i] = acquiring(f.Context(), refused)
		}
		pass(moment)
		began := time.Now()
		cancel()
		require.Error(f, (<-ahead).err)
		require.NoError(f, holder.Release())
		require.NoError(f, f.granted(waiter).Release())
		require.NoError(f, acquire(f.T, mutexOn(f.T, client, "/other")).Release())
		require.Less(f, time.Since(began), time.Second)
		for _, done := range crowd {
			require.Error(f, (<-done).err)
		}
	})
}
