package election_test

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

func TestPausesGrowWhileTheFunctionFails(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		f := elections.Failing{Run: func(context.Context, int) error { return elections.ErrWork }}
		s := elections.StartSelector(t, testclient.ConnectSettled(t, srv), f.Take, selector.WithAutoRequeue(), selector.WithErrorHandler(elections.Discard))
		bubble.Pass(10 * time.Minute)
		want := time.Second // the default, to 30 s
		for _, pause := range elections.Pauses(f.Called()) {
			elections.RequireAround(t, want, pause)
			want = min(want*3/2, 30*time.Second)
		}
		require.Greater(t, len(f.Called()), 15)
		require.Empty(t, srv.Children(elections.Path), "it leaves the election for the pause")
		start := time.Now()
		require.NoError(t, s.Close())
		require.Equal(t, start, time.Now(), "even in a pause")
	})
}

// Success, or a failure after a long time as leader, makes the next pauses short ones
// again. After a success there is none, unless the term was short.
func TestPausesStartOver(t *testing.T) {
	for name, c := range map[string]struct {
		good func(ctx context.Context) error
		want []time.Duration
	}{
		"success": {
			func(context.Context) error { bubble.Pause(time.Second); return nil },
			[]time.Duration{0, time.Second, 1500 * time.Millisecond},
		},
		"short success": {
			func(context.Context) error { return nil },
			[]time.Duration{time.Second, time.Second, 1500 * time.Millisecond},
		},
		"end of the term": {
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			[]time.Duration{0, time.Second, 1500 * time.Millisecond},
		},
		"late failure": {
			func(context.Context) error { bubble.Pause(31 * time.Second); return elections.ErrWork },
			[]time.Duration{time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond},
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				ended := make(chan time.Time, 1)
				f := elections.Failing{Run: func(ctx context.Context, n int) error {
					if n != 10 {
						return elections.ErrWork
					}
					err := c.good(ctx)
					ended <- time.Now()
					return err
				}}
				s := elections.StartSelector(t, testclient.ConnectSettled(t, srv), f.Take, selector.WithAutoRequeue(), selector.WithErrorHandler(elections.Discard))
				for len(f.Called()) < 10 {
					bubble.Pass(time.Second)
				}
				bubble.Pass(2 * time.Second)
				s.InterruptLeadership()
				for len(f.Called()) < 13 {
					bubble.Pass(time.Second)
				}
				after := append([]time.Time{<-ended}, f.Called()[10:13]...)
				for i, pause := range elections.Pauses(after) {
					elections.RequireAround(t, c.want[i], pause)
				}
			})
		})
	}
}

func TestRequeueBackoffGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		policy recipes.RetryPolicy
		calls  int
	}{
		"attempts": {recipes.RetryPolicy{MaxAttempts: 3}, 3},
		"time":     {recipes.RetryPolicy{InitialInterval: time.Second, MaxInterval: time.Second, MaxElapsed: time.Minute}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				f := elections.Failing{Run: func(context.Context, int) error { return elections.ErrWork }}
				var told []error
				s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), f.Take, selector.WithAutoRequeue(), selector.WithRequeueBackoff(c.policy),
					selector.WithErrorHandler(func(err error) { told = append(told, err) }))
				start := time.Now()
				err := s.Run(t.Context())
				require.ErrorIs(t, err, elections.ErrWork)
				calls := len(f.Called())
				require.Len(t, told, calls)
				if c.calls > 0 {
					require.Equal(t, c.calls, calls)
				} else {
					require.Greater(t, calls, 30)
					require.LessOrEqual(t, time.Since(start), time.Minute)
				}
				require.Empty(t, srv.Children(elections.Path))
			})
		})
	}
}

// Waiting is no success. After a minute in the queue, the series of failures continues.
func TestPausesGrowOverTimeInTheQueue(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		f := elections.Failing{Run: func(context.Context, int) error { return elections.ErrWork }}
		client := testclient.ConnectSettled(t, srv)
		elections.StartSelector(t, client, f.Take, selector.WithAutoRequeue(), selector.WithErrorHandler(elections.Discard))
		other := elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle, selector.WithAutoRequeue())
		want := time.Second
		for range 8 {
			requests := srv.Observe()
			bubble.Pass(time.Minute)
			calls := f.Called()
			elections.RequireAround(t, want, requests.Requests(zktest.OpCreate2)[0].Time.Sub(calls[len(calls)-1]))
			want = want * 3 / 2
			other.InterruptLeadership()
			bubble.Pass(0)
			require.True(t, other.HasLeadership(), "as soon as the function has failed again")
		}
	})
}

// A short term that ends with its session was not ended by this process. The selector joins again as soon as there is
// another session.
func TestNoPauseAfterATermThatLostItsSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		began := make(chan *recipes.Lease)
		s := elections.StartSelector(t, client, func(ctx context.Context, term *recipes.Lease) error {
			began <- term
			<-ctx.Done()
			return ctx.Err()
		}, selector.WithAutoRequeue())
		term := <-began
		for range 5 {
			log := srv.Observe()
			srv.Expire(elections.SessionOf(client))
			<-term.Context().Done()
			require.ErrorIs(t, context.Cause(term.Context()), recipes.ErrSessionLost)
			term = <-began
			connected := log.Requests(zktest.OpConnect)
			require.Less(t, time.Since(connected[len(connected)-1].Time), 100*time.Millisecond, "no pause once there is a session")
		}
		require.NoError(t, s.Close())
	})
}
