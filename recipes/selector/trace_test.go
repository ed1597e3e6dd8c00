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
		require.Equal(t, []int64{4, 4, 4, 0}, []int64{starts.Load(), terms.Load(), ends.Load(), failures.Load()})
		synctest.Wait() // records are written beside the end of Run
		lines := log.Take()
		require.Len(t, lines, 1)
		require.Regexp(t, `^level=INFO msg="stepped down" path=/services/billing token=\d+ id=billing-1 led=\S+ cause="`+errWork.Error()+`"$`, lines[0])
	})
}

// Close and Run return after the hook that is told of the end of the last term. The successor does not wait for that.
func TestCloseWaitsForLeaseEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var isRunning atomic.Bool
		trace := &recipes.Trace{LeaseEnd: func(context.Context, recipes.LeaseEnd) {
			isRunning.Store(true)
			pass(3 * time.Second)
			isRunning.Store(false)
		}}
		s := enter(t, testclient.ConnectSettled(t, srv, recipes.WithTrace(trace)), idle)
		require.True(t, s.HasLeadership())
		next := enter(t, testclient.ConnectSettled(t, srv), idle)
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		pass(time.Second)
		require.True(t, isRunning.Load())
		require.True(t, next.HasLeadership())
		require.NoError(t, <-closed)
		require.False(t, isRunning.Load())
	})
}

// The hook that is told of the end of a term may close the selector, and the client: neither waits for itself.
func TestCloseInLeaseEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var s *selector.LeaderSelector
		var client *recipes.Client
		inside := make(chan error, 2)
		trace := &recipes.Trace{LeaseEnd: func(context.Context, recipes.LeaseEnd) {
			inside <- s.Close()
			inside <- client.Close()
		}}
		client = testclient.ConnectSettled(t, srv, recipes.WithTrace(trace))
		s = enter(t, client, idle)
		require.True(t, s.HasLeadership())
		start := time.Now()
		require.NoError(t, s.Close())
		require.NoError(t, <-inside)
		require.NoError(t, <-inside)
		require.Less(t, time.Since(start), time.Second)
	})
}
