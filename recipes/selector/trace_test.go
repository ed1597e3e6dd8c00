package selector_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Each term has one AcquireEnd and one LeaseEnd, however it ends. The end of Run is in order.
func TestTraceAndLogOfTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, log := zktest.NewServer(t), &testkit.Log{}
		var starts, terms, ends, failures atomic.Int64
		trace := &recipes.Trace{
			AcquireStart: func(ctx context.Context, e recipes.AcquireStart) context.Context {
				if e == (recipes.AcquireStart{Recipe: "selector", Name: "billing", Path: election}) {
					starts.Add(1)
				}
				return ctx
			},
			AcquireEnd: func(_ context.Context, e recipes.AcquireEnd) {
				if e.Err != nil {
					failures.Add(1)
					return
				}
				terms.Add(1)
			},
			LeaseEnd: func(_ context.Context, e recipes.LeaseEnd) {
				if e.Cause == nil {
					ends.Add(1)
				}
			},
		}
		client := testclient.ConnectSettled(t, srv, recipes.WithTrace(trace), recipes.WithLogger(log.Logger(slog.LevelInfo)))
		take := func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return nil }
		s := create(t, client, take, selector.WithName("billing"), selector.WithID("billing-1"), selector.WithAutoRequeue())
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		for range 3 {
			pass(time.Minute)
			s.InterruptLeadership()
		}
		pass(time.Minute)
		log.Take()
		cancel(errWork)
		require.NoError(t, <-done)
		synctest.Wait() // the end of the last lease is told beside the end of Run
		require.Equal(t, []int64{4, 4, 4, 0}, []int64{starts.Load(), terms.Load(), ends.Load(), failures.Load()})
		lines := log.Take()
		require.Len(t, lines, 1)
		require.Regexp(t, `^level=INFO msg="stepped down" path=/services/billing token=\d+ id=billing-1 led=\S+ cause="`+errWork.Error()+`"$`, lines[0])
	})
}
