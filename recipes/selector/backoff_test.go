package selector_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// failing is a function that notes when it is called, and how to end.
type failing struct {
	run func(ctx context.Context, n int) error

	mu    sync.Mutex // protects what is below
	calls []time.Time
}

func (f *failing) take(ctx context.Context, _ *recipes.Lease) error {
	f.mu.Lock()
	f.calls = append(f.calls, time.Now())
	n := len(f.calls)
	f.mu.Unlock()
	return f.run(ctx, n)
}

// called is when there were calls until now.
func (f *failing) called() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// pauses are the times between them.
func pauses(calls []time.Time) (all []time.Duration) {
	for i := range calls[1:] {
		all = append(all, calls[i+1].Sub(calls[i]))
	}
	return all
}

var errWork = errors.New("no database")

func discard(error) {}

// requireAround checks a pause that has a jitter of a half.
func requireAround(t *testing.T, want, pause time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, pause, want/2)
	require.LessOrEqual(t, pause, want*3/2+time.Millisecond)
}

func TestPausesGrowWhileTheFunctionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		f := failing{run: func(context.Context, int) error { return errWork }}
		s := enter(t, testclient.ConnectSettled(t, srv), f.take, selector.WithAutoRequeue(), selector.WithErrorHandler(discard))
		pass(10 * time.Minute)
		want := time.Second // the default, to 30 s
		for _, pause := range pauses(f.called()) {
			requireAround(t, want, pause)
			want = min(want*3/2, 30*time.Second)
		}
		require.Greater(t, len(f.called()), 15)
		require.Empty(t, srv.Children(election), "it leaves the election for the pause")
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
			func(context.Context) error { pause(time.Second); return nil },
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
			func(context.Context) error { pause(31 * time.Second); return errWork },
			[]time.Duration{time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				ended := make(chan time.Time, 1)
				f := failing{run: func(ctx context.Context, n int) error {
					if n != 10 {
						return errWork
					}
					err := c.good(ctx)
					ended <- time.Now()
					return err
				}}
				s := enter(t, testclient.ConnectSettled(t, srv), f.take, selector.WithAutoRequeue(), selector.WithErrorHandler(discard))
				for len(f.called()) < 10 {
					pass(time.Second)
				}
				pass(2 * time.Second)
				s.InterruptLeadership()
				for len(f.called()) < 13 {
					pass(time.Second)
				}
				after := append([]time.Time{<-ended}, f.called()[10:13]...)
				for i, pause := range pauses(after) {
					requireAround(t, c.want[i], pause)
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
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				f := failing{run: func(context.Context, int) error { return errWork }}
				var told []error
				s := create(t, testclient.ConnectSettled(t, srv), f.take, selector.WithAutoRequeue(), selector.WithRequeueBackoff(c.policy),
					selector.WithErrorHandler(func(err error) { told = append(told, err) }))
				start := time.Now()
				err := s.Run(t.Context())
				require.ErrorIs(t, err, errWork)
				calls := len(f.called())
				require.Len(t, told, calls)
				if c.calls > 0 {
					require.Equal(t, c.calls, calls)
				} else {
					require.Greater(t, calls, 30)
					require.LessOrEqual(t, time.Since(start), time.Minute)
				}
				require.Empty(t, srv.Children(election))
			})
		})
	}
}

// To wait for others is no success: after a minute in the queue the row of failures goes on.
func TestPausesGrowOverTimeInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		f := failing{run: func(context.Context, int) error { return errWork }}
		client := testclient.ConnectSettled(t, srv)
		enter(t, client, f.take, selector.WithAutoRequeue(), selector.WithErrorHandler(discard))
		other := enter(t, testclient.ConnectSettled(t, srv), idle, selector.WithAutoRequeue())
		want := time.Second
		for range 8 {
			requests := srv.Observe()
			pass(time.Minute)
			calls := f.called()
			requireAround(t, want, requests.Requests(zktest.OpCreate2)[0].Time.Sub(calls[len(calls)-1]))
			want = want * 3 / 2
			other.InterruptLeadership()
			pass(0)
			require.True(t, other.HasLeadership(), "as soon as the function has failed again")
		}
	})
}

// A short term that ends with its session was ended by nobody here: the selector stands again as soon as there is another
// session.
func TestNoPauseAfterATermThatLostItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		began := make(chan *recipes.Lease)
		s := enter(t, client, func(ctx context.Context, term *recipes.Lease) error {
			began <- term
			<-ctx.Done()
			return ctx.Err()
		}, selector.WithAutoRequeue())
		term := <-began
		for range 5 {
			log := srv.Observe()
			srv.Expire(sessionOf(client))
			<-term.Context().Done()
			require.ErrorIs(t, context.Cause(term.Context()), recipes.ErrSessionLost)
			term = <-began
			connected := log.Requests(zktest.OpConnect)
			require.Less(t, time.Since(connected[len(connected)-1].Time), 100*time.Millisecond, "no pause once there is a session")
		}
		require.NoError(t, s.Close())
	})
}
