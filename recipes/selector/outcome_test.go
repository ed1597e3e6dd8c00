package selector_test

import (
	"context"
	"testing"
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

// run starts Run and returns its result, which must arrive within virtual time.
func run(ctx context.Context, s *selector.LeaderSelector) <-chan error {
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }() // ends with Run, which the test's context bounds
	return result
}

// resultOf waits for the result of Run for a virtual hour.
func resultOf(t *testing.T, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(time.Hour):
		require.FailNow(t, "Run goes on after an hour")
		return nil
	}
}

// Without autoRequeue, Run returns when its only term is over, with the term's outcome.
func TestRunReturnsWithTheOutcomeOfItsTerm(t *testing.T) {
	obey := func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return ctx.Err() }
	late := func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return elections.ErrWork }
	interrupt := func(_ *zktest.Server, s *selector.LeaderSelector) { s.InterruptLeadership() }
	remove := func(srv *zktest.Server, _ *selector.LeaderSelector) { srv.Delete(elections.Paths(srv)[0]) }
	for name, c := range map[string]struct {
		take selector.TakeLeadership
		end  func(srv *zktest.Server, s *selector.LeaderSelector) // after a minute
		want []error
		not  []error
	}{
		"success":                           {func(context.Context, *recipes.Lease) error { return nil }, nil, nil, nil},
		"error":                             {func(context.Context, *recipes.Lease) error { return elections.ErrWork }, nil, []error{elections.ErrWork}, nil},
		"panic":                             {func(context.Context, *recipes.Lease) error { panic(elections.ErrWork) }, nil, []error{elections.ErrWork}, nil},
		"Release":                           {func(_ context.Context, term *recipes.Lease) error { return term.Release() }, nil, nil, nil},
		"InterruptLeadership":               {obey, interrupt, nil, nil},
		"InterruptLeadership, and an error": {late, interrupt, []error{elections.ErrWork}, []error{recipes.ErrReleased}},
		"loss":                              {obey, remove, []error{recipes.ErrNodeDeleted}, []error{context.Canceled}},
		"loss, and an error":                {late, remove, []error{elections.ErrWork, recipes.ErrNodeDeleted}, nil},
		"loss, and success": {
			func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return nil }, remove,
			[]error{recipes.ErrNodeDeleted},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), c.take, selector.WithErrorHandler(elections.Discard))
				result := run(t.Context(), s)
				bubble.Pass(time.Minute)
				if c.end != nil {
					require.True(t, s.HasLeadership())
					c.end(srv, s)
				}
				err := resultOf(t, result)
				if len(c.want) == 0 {
					require.NoError(t, err)
				}
				for _, want := range c.want {
					require.ErrorIs(t, err, want)
					require.ErrorContains(t, err, "selector: lead "+elections.Path+": ")
					require.NotContains(t, err.Error(), "\n", "one line")
				}
				for _, other := range c.not {
					require.NotErrorIs(t, err, other)
				}
				require.Empty(t, srv.Children(elections.Path))
				require.False(t, s.Requeue(), "closed")
				require.ErrorIs(t, s.Start(), recipes.ErrClosed)
			})
		})
	}
}

// A program that asks for another term before Run decides gets one: with Requeue in the error handler or before, with
// AutoRequeue at any time.
func TestRunContinuesWhileTermsAreRequested(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.ConnectSettled(t, srv)
		for range testkit.Shorter(400, 50) {
			var s *selector.LeaderSelector
			terms := 0
			s = elections.NewSelector(t, client, func(context.Context, *recipes.Lease) error { terms++; return elections.ErrWork },
				selector.WithErrorHandler(func(error) {
					if terms < 3 && !s.Requeue() {
						t.Error("refused")
					}
				}))
			require.ErrorIs(t, resultOf(t, run(t.Context(), s)), elections.ErrWork)
			require.Equal(t, 3, terms)
		}
	})
}

// Run waits for a slow handler.
func TestRunDecidesAfterTheErrorHandlerHasReturned(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var s *selector.LeaderSelector
		terms := 0
		s = elections.NewSelector(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error {
			if terms++; terms == 1 {
				return elections.ErrWork
			}
			return nil
		}, selector.WithErrorHandler(func(error) {
			bubble.Pause(time.Minute)
			if !s.Requeue() {
				t.Error("refused")
			}
			panic("after that")
		}))
		require.NoError(t, resultOf(t, run(t.Context(), s)), "the last term was a success")
		require.Equal(t, 2, terms)
	})
}

type valueKey struct{}

// Under Run a term has the values of Run's context, and ends with its cause.
func TestTermsOfRunHaveItsValuesAndCause(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "trace 17"))
		var values []any
		var causes []error
		var told []error
		s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), func(ctx context.Context, _ *recipes.Lease) error {
			values = append(values, ctx.Value(valueKey{}))
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return context.Cause(ctx)
		}, selector.WithAutoRequeue(), selector.WithErrorHandler(func(err error) { told = append(told, err) }))
		result := run(ctx, s)
		bubble.Pass(time.Minute)
		s.InterruptLeadership()
		bubble.Pass(time.Minute)
		cancel(elections.ErrShutdown)
		require.NoError(t, resultOf(t, result), "stopped in order")
		require.Equal(t, []any{"trace 17", "trace 17"}, values)
		require.Equal(t, []error{recipes.ErrReleased, elections.ErrShutdown}, causes)
		require.Empty(t, told, "the end of the term is no failure")
	})
}

// A deadline of Run's context ends a term in the usual order, and is the error of Run.
func TestTermsOfRunEndWithItsDeadline(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var cause error
		s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), func(ctx context.Context, _ *recipes.Lease) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		})
		err := s.Run(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "selector: run "+elections.Path+": context deadline exceeded")
		require.Equal(t, context.DeadlineExceeded, cause)
		require.Empty(t, srv.Children(elections.Path))
	})
}

// A deadline is the error of Run whatever the selector does then, with its own cause if it has one. A cancellation is
// not, and neither is a deadline after the end of Run.
func TestDeadlineOfRunIsItsError(t *testing.T) {
	for name, c := range map[string]struct {
		take selector.TakeLeadership
		opts []selector.Option
		end  func(ctx context.Context) (context.Context, context.CancelFunc)
		want []error
	}{
		"waiting": {nil, nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}, []error{context.DeadlineExceeded}},
		"waiting, with a cause": {nil, nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Minute, elections.ErrShutdown)
		}, []error{context.DeadlineExceeded, elections.ErrShutdown}},
		"in a pause": {
			func(context.Context, *recipes.Lease) error { return elections.ErrWork },
			[]selector.Option{selector.WithAutoRequeue()},
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Minute)
			},
			[]error{context.DeadlineExceeded},
		},
		"a failure at the deadline": {
			func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return elections.ErrWork }, nil,
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Minute)
			},
			[]error{context.DeadlineExceeded, elections.ErrWork},
		},
		"cancelled while it waits": {nil, nil, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Minute, func() { cancel(elections.ErrShutdown) })
			return ctx, func() { cancel(nil) }
		}, nil},
		"over before the deadline": {
			func(context.Context, *recipes.Lease) error { return nil }, nil,
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Minute)
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				if c.take == nil {
					elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle)
					c.take = elections.Idle
				}
				ctx, cancel := c.end(t.Context())
				defer cancel()
				s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), c.take, append(c.opts, selector.WithErrorHandler(elections.Discard))...)
				err := s.Run(ctx)
				if c.want == nil {
					require.NoError(t, err)
				}
				for _, want := range c.want {
					require.ErrorIs(t, err, want)
				}
				require.Empty(t, s.Path())
			})
		})
	}
}

// A function that returns at once does not cause a hot loop, with neither automatic nor manual requeue.
func TestShortTermsAreFollowedByAPause(t *testing.T) {
	for name, c := range map[string]struct {
		policy recipes.RetryPolicy
		first  time.Duration
		opts   []selector.Option
	}{
		"default":  {recipes.RetryPolicy{}, time.Second, []selector.Option{selector.WithAutoRequeue()}},
		"longer":   {recipes.RetryPolicy{InitialInterval: 10 * time.Second}, 10 * time.Second, []selector.Option{selector.WithAutoRequeue()}},
		"attempts": {recipes.RetryPolicy{MaxAttempts: 2}, time.Second, []selector.Option{selector.WithAutoRequeue()}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				f := elections.Failing{Run: func(context.Context, int) error { return nil }}
				s := elections.StartSelector(t, testclient.ConnectSettled(t, srv), f.Take, append(c.opts, selector.WithRequeueBackoff(c.policy))...)
				waited := testkit.Shorter(10*time.Minute, 3*time.Minute)
				bubble.Pass(waited)
				calls := f.Called()
				require.Greater(t, len(calls), int(waited/c.first)/2, "successes are no reason to give up")
				for _, pause := range elections.Pauses(calls) {
					elections.RequireAround(t, c.first, pause)
				}
				start := time.Now()
				require.NoError(t, s.Close())
				require.Equal(t, start, time.Now(), "even in a pause")
			})
		})
	}
}

// A term that was long enough is followed by none.
func TestLongTermsAreFollowedByNoPause(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		f := elections.Failing{Run: func(context.Context, int) error { bubble.Pause(time.Second); return nil }}
		elections.StartSelector(t, testclient.ConnectSettled(t, srv), f.Take, selector.WithAutoRequeue())
		bubble.Pass(time.Minute)
		require.GreaterOrEqual(t, len(f.Called()), 60)
	})
}

// Requeue by hand right after each term, from the error handler, is no hot loop either.
func TestRequeueInTheErrorHandlerIsNoHotLoop(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var s *selector.LeaderSelector
		f := elections.Failing{Run: func(context.Context, int) error { return elections.ErrWork }}
		s = elections.NewSelector(t, testclient.ConnectSettled(t, srv), f.Take, selector.WithErrorHandler(func(error) { s.Requeue() }))
		require.NoError(t, s.Start())
		bubble.Pass(time.Minute)
		for _, pause := range elections.Pauses(f.Called()) {
			elections.RequireAround(t, time.Second, pause)
		}
	})
}
