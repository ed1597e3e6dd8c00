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
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Each term has one AcquireEnd and one LeaseEnd, for every kind of end. The end of Run is in order.
func TestTraceAndLogOfTerms(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, log := zktest.NewServer(t), &testkit.Log{}
		var starts, terms, ends, failures atomic.Int64
		trace := &recipes.Trace{
			AcquireStart: func(ctx context.Context, e recipes.AcquireStart) context.Context {
				if e == (recipes.AcquireStart{Recipe: "selector", Name: "billing", Path: elections.Path}) {
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
		s := elections.NewSelector(t, client, take, selector.WithName("billing"), selector.WithID("billing-1"), selector.WithAutoRequeue())
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		for range 3 {
			bubble.Pass(time.Minute)
			s.InterruptLeadership()
		}
		bubble.Pass(time.Minute)
		log.Take()
		cancel(elections.ErrWork)
		require.NoError(t, <-done)
		require.Equal(t, []int64{4, 4, 4, 0}, []int64{starts.Load(), terms.Load(), ends.Load(), failures.Load()})
		synctest.Wait() // records are written beside the end of Run
		lines := log.Take()
		require.Len(t, lines, 2)
		require.Regexp(t, `^level=INFO msg="stepped down" path=/services/billing token=\d+ id=billing-1 led=\S+ cause="`+elections.ErrWork.Error()+`"$`, lines[0])
		require.Equal(t, `level=INFO msg="left the election" path=/services/billing id=billing-1 cause="`+elections.ErrWork.Error()+`"`, lines[1])
	})
}

// Close and Run return after the hook for the end of the last term. The successor does not wait for the hook.
func TestCloseWaitsForLeaseEnd(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var isRunning atomic.Bool
		trace := &recipes.Trace{LeaseEnd: func(context.Context, recipes.LeaseEnd) {
			isRunning.Store(true)
			bubble.Pass(3 * time.Second)
			isRunning.Store(false)
		}}
		s := elections.StartSelector(t, testclient.ConnectSettled(t, srv, recipes.WithTrace(trace)), elections.Idle)
		require.True(t, s.HasLeadership())
		next := elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle)
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		bubble.Pass(time.Second)
		require.True(t, isRunning.Load())
		require.True(t, next.HasLeadership())
		require.NoError(t, <-closed)
		require.False(t, isRunning.Load())
	})
}

// The hook for the end of a term may close the selector and the client, without a deadlock.
func TestCloseInLeaseEnd(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var s *selector.LeaderSelector
		var client *recipes.Client
		inside := make(chan error, 2)
		trace := &recipes.Trace{LeaseEnd: func(context.Context, recipes.LeaseEnd) {
			inside <- s.Close()
			inside <- client.Close()
		}}
		client = testclient.ConnectSettled(t, srv, recipes.WithTrace(trace))
		s = elections.StartSelector(t, client, elections.Idle)
		require.True(t, s.HasLeadership())
		start := time.Now()
		require.NoError(t, s.Close())
		require.NoError(t, <-inside)
		require.NoError(t, <-inside)
		require.Less(t, time.Since(start), time.Second)
	})
}
