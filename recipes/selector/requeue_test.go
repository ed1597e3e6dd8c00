package selector_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
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

// Start and Requeue are for one term each.
func TestRequeueIsForOneTerm(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		other := elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle, selector.WithAutoRequeue())
		s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), j.Leader("a"))
		require.False(t, s.Requeue(), "not started")
		require.NoError(t, s.Start())
		for range 3 {
			bubble.Pass(time.Second)
			require.False(t, s.Requeue(), "waiting")
			other.InterruptLeadership()
			require.Equal(t, []string{"a leads"}, j.ReadSettled())
			require.False(t, s.Requeue(), "leading")
			s.InterruptLeadership()
			require.Equal(t, []string{"a ends: released"}, j.ReadSettled())
			require.Len(t, srv.Children(elections.Path), 1, "it has left")
			bubble.Pass(time.Minute)
			require.Empty(t, j.ReadSettled())
			require.True(t, s.Requeue())
			require.False(t, s.Requeue(), "at once again")
		}
		require.NoError(t, s.Close())
		require.False(t, s.Requeue(), "closed")
		require.Len(t, srv.Children(elections.Path), 1)
	})
}

// A function that asks for another term while it leads gets none, because the selector is still queued, as in
// Curator. AutoRequeue is for that.
func TestRequeueInsideTheFunction(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var terms atomic.Int32
		var s *selector.LeaderSelector
		s = elections.NewSelector(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error {
			if terms.Add(1) == 1 && s.Requeue() {
				t.Error("requeued")
			}
			s.AutoRequeue()
			if terms.Load() == 3 {
				return s.Close()
			}
			return nil
		})
		require.NoError(t, s.Start())
		bubble.Pass(time.Minute)
		require.Equal(t, int32(3), terms.Load())
		require.Empty(t, srv.Children(elections.Path))
	})
}

func TestAutoRequeueFromAnyStateOn(t *testing.T) {
	for name, call := range map[string]func(s *selector.LeaderSelector, start func()){
		"before Start":   func(s *selector.LeaderSelector, start func()) { s.AutoRequeue(); start() },
		"while leading":  func(s *selector.LeaderSelector, start func()) { start(); bubble.Pass(time.Second / 2); s.AutoRequeue() },
		"after the term": func(s *selector.LeaderSelector, start func()) { start(); bubble.Pass(time.Minute); s.AutoRequeue() },
		"several times":  func(s *selector.LeaderSelector, start func()) { start(); s.AutoRequeue(); s.AutoRequeue() },
		"after a Requeue": func(s *selector.LeaderSelector, start func()) {
			start()
			bubble.Pass(time.Minute)
			s.Requeue()
			s.AutoRequeue()
		},
		"before a Requeue": func(s *selector.LeaderSelector, start func()) {
			start()
			bubble.Pass(time.Minute)
			s.AutoRequeue()
			s.Requeue()
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var terms atomic.Int32
				s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error {
					terms.Add(1)
					bubble.Pause(time.Second)
					return nil
				})
				call(s, func() { require.NoError(t, s.Start()) })
				before := terms.Load()
				bubble.Pass(10 * time.Second)
				require.GreaterOrEqual(t, terms.Load(), before+10, "no pause between terms without a failure")
				require.LessOrEqual(t, terms.Load(), before+11)
				require.NoError(t, s.Close())
				s.AutoRequeue()
				bubble.Pass(time.Minute)
				require.Empty(t, srv.Children(elections.Path))
			})
		})
	}
}

// A selector that gave up can be asked to try again.
func TestRequeueAfterGivingUp(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		f := elections.Failing{Run: func(context.Context, int) error { return elections.ErrWork }}
		s := elections.StartSelector(t, testclient.ConnectSettled(t, srv), f.Take, selector.WithErrorHandler(elections.Discard),
			selector.WithAutoRequeue(), selector.WithRequeueBackoff(recipes.RetryPolicy{MaxAttempts: 2}))
		bubble.Pass(time.Minute)
		require.Len(t, f.Called(), 2)
		require.True(t, s.Requeue())
		bubble.Pass(time.Minute)
		require.Len(t, f.Called(), 4)
		s.AutoRequeue()
		bubble.Pass(time.Minute)
		require.Len(t, f.Called(), 6)
	})
}

// The error handler may ask for another term itself.
func TestRequeueInsideTheErrorHandler(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var s *selector.LeaderSelector
		f := elections.Failing{Run: func(context.Context, int) error { return elections.ErrWork }}
		s = elections.NewSelector(t, testclient.ConnectSettled(t, srv), f.Take, selector.WithErrorHandler(func(error) {
			if len(f.Called()) < 20 && !s.Requeue() {
				t.Error("refused")
			}
		}))
		require.NoError(t, s.Start())
		bubble.Pass(time.Minute)
		require.Len(t, f.Called(), 20)
	})
}

// After the end of Run's context, no attempt follows. So Requeue is refused, also before Run notices the end, and Run returns
// the failure of the last term.
func TestRequeueAfterTheEndOfRunsContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		late := &lateContext{Context: ctx, seen: make(chan struct{})}
		var s *selector.LeaderSelector
		take := func(ctx context.Context, _ *recipes.Lease) error {
			cancel()
			<-ctx.Done()
			return elections.ErrWork
		}
		s = elections.NewSelector(t, testclient.ConnectSettled(t, zktest.NewServer(t)), take, selector.WithErrorHandler(func(error) {
			if s.Requeue() {
				t.Error("requeued")
			}
			close(late.seen)
		}))
		require.ErrorIs(t, s.Run(late), elections.ErrWork)
	})
}

// The end of Run's context counts from that moment on, even if the context of the term ends a little later.
func TestRequeueAtTheEndOfRunsContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client := testclient.ConnectSettled(t, zktest.NewServer(t))
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			var s *selector.LeaderSelector
			take := func(context.Context, *recipes.Lease) error {
				cancel()
				return elections.ErrWork
			}
			s = elections.NewSelector(t, client, take, selector.WithErrorHandler(func(error) {
				if s.Requeue() {
					t.Error("requeued")
				}
			}))
			require.ErrorIs(t, s.Run(ctx), elections.ErrWork)
		}
	})
}

// lateContext is a context whose end Run notices only when seen is closed.
type lateContext struct {
	context.Context //nolint:containedctx // a context of a user

	seen chan struct{}
}

func (c *lateContext) Err() error {
	err := c.Context.Err()
	if caller, _, _, _ := runtime.Caller(1); err != nil && strings.HasSuffix(runtime.FuncForPC(caller).Name(), ".Run") { //nolint:dogsled // no more is needed
		<-c.seen
	}
	return err
}
