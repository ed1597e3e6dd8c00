package semaphore_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Several permits are one acquisition, whose lease ends with the last of them.
func TestTraceAndLogOfPermits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls []any
		add := func(call any) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, call)
		}
		trace := &recipes.Trace{
			AcquireEnd: func(_ context.Context, e recipes.AcquireEnd) { add(e) },
			LeaseEnd:   func(_ context.Context, e recipes.LeaseEnd) { add(e) },
		}
		const path = "/permits"
		srv, log := zktest.NewServer(t), &testkit.Log{}
		pass := func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // virtual time
			synctest.Wait()
		}
		other, err := semaphore.New(testclient.ConnectSettled(t, srv, recipes.WithID("the holder")), path, 3)
		require.NoError(t, err)
		held, err := other.AcquireN(t.Context(), 2)
		require.NoError(t, err)
		since := time.Now()

		client := testclient.ConnectSettled(t, srv, recipes.WithTrace(trace), recipes.WithLogger(log.Logger(slog.LevelWarn)))
		s, err := semaphore.New(client, path, 3, semaphore.WithName("downloads"))
		require.NoError(t, err)
		require.Equal(t, "semaphore /permits", fmt.Sprint(s))
		done := make(chan []*recipes.Lease, 1)
		go func() {
			leases, err := s.AcquireN(t.Context(), 3)
			if err != nil {
				t.Error(err)
			}
			done <- leases
		}()
		pass(2 * time.Minute)
		require.Equal(t, fmt.Sprintf(
			`level=WARN msg="slow wait" path=/permits waited=1m0s position=1 waiters=1 holder="the holder" since=%s`, since.Format("2006-01-02T15:04:05.000Z07:00")), log.Take()[0])
		for _, lease := range held {
			require.NoError(t, lease.Release())
		}
		leases := <-done
		pass(time.Second)
		for _, lease := range leases {
			require.NoError(t, lease.Release())
			pass(time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, calls, 2)
		token := leases[0].FencingToken()
		require.Equal(t, recipes.AcquireEnd{
			Recipe: "semaphore", Name: "downloads", Path: path, Ahead: 2, Waited: 2 * time.Minute, Token: token, Permits: 3,
		}, calls[0], "two permits had to come back first")
		require.Equal(t, recipes.LeaseEnd{Recipe: "semaphore", Name: "downloads", Path: path, Held: 3 * time.Second, Token: token, Permits: 3}, calls[1])
		require.Empty(t, log.Take())
	})
}
