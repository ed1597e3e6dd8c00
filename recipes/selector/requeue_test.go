package selector_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Start and Requeue are for one term each.
func TestRequeueIsForOneTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		other := enter(t, testclient.ConnectSettled(t, srv), idle, selector.WithAutoRequeue())
		s := create(t, testclient.ConnectSettled(t, srv), j.leader("a"))
		require.False(t, s.Requeue(), "not started")
		require.NoError(t, s.Start())
		for range 3 {
			pass(time.Second)
			require.False(t, s.Requeue(), "waiting")
			other.InterruptLeadership()
			require.Equal(t, []string{"a leads"}, j.read())
			require.False(t, s.Requeue(), "leading")
			s.InterruptLeadership()
			require.Equal(t, []string{"a ends: released"}, j.read())
			require.Len(t, srv.Children(election), 1, "it has left")
			pass(time.Minute)
			require.Empty(t, j.read())
			require.True(t, s.Requeue())
			require.False(t, s.Requeue(), "at once again")
		}
		require.NoError(t, s.Close())
		require.False(t, s.Requeue(), "closed")
		require.Len(t, srv.Children(election), 1)
	})
}

// A function that asks for another term while it leads gets none: it is still queued, as in
// Curator. AutoRequeue is for that.
func TestRequeueInsideTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var terms atomic.Int32
		var s *selector.LeaderSelector
		s = create(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error {
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
		pass(time.Minute)
		require.Equal(t, int32(3), terms.Load())
		require.Empty(t, srv.Children(election))
	})
}

func TestAutoRequeueFromAnyStateOn(t *testing.T) {
	for name, call := range map[string]func(s *selector.LeaderSelector, start func()){
		"before Start":   func(s *selector.LeaderSelector, start func()) { s.AutoRequeue(); start() },
		"while leading":  func(s *selector.LeaderSelector, start func()) { start(); pass(time.Second / 2); s.AutoRequeue() },
		"after the term": func(s *selector.LeaderSelector, start func()) { start(); pass(time.Minute); s.AutoRequeue() },
		"several times":  func(s *selector.LeaderSelector, start func()) { start(); s.AutoRequeue(); s.AutoRequeue() },
		"after a Requeue": func(s *selector.LeaderSelector, start func()) {
			start()
			pass(time.Minute)
			s.Requeue()
			s.AutoRequeue()
		},
		"before a Requeue": func(s *selector.LeaderSelector, start func()) {
			start()
			pass(time.Minute)
			s.AutoRequeue()
			s.Requeue()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var terms atomic.Int32
				s := create(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error {
					terms.Add(1)
					pause(time.Second)
					return nil
				})
				call(s, func() { require.NoError(t, s.Start()) })
				before := terms.Load()
				pass(10 * time.Second)
				require.GreaterOrEqual(t, terms.Load(), before+10, "no pause between terms without a failure")
				require.LessOrEqual(t, terms.Load(), before+11)
				require.NoError(t, s.Close())
				s.AutoRequeue()
				pass(time.Minute)
				require.Empty(t, srv.Children(election))
			})
		})
	}
}

// One that has given up can be asked to try again.
func TestRequeueAfterGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		f := failing{run: func(context.Context, int) error { return errWork }}
		s := enter(t, testclient.ConnectSettled(t, srv), f.take, selector.WithErrorHandler(discard),
			selector.WithAutoRequeue(), selector.WithRequeueBackoff(recipes.RetryPolicy{MaxAttempts: 2}))
		pass(time.Minute)
		require.Len(t, f.called(), 2)
		require.True(t, s.Requeue())
		pass(time.Minute)
		require.Len(t, f.called(), 4)
		s.AutoRequeue()
		pass(time.Minute)
		require.Len(t, f.called(), 6)
	})
}

// The error handler may ask for another term itself.
func TestRequeueInsideTheErrorHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var s *selector.LeaderSelector
		f := failing{run: func(context.Context, int) error { return errWork }}
		s = create(t, testclient.ConnectSettled(t, srv), f.take, selector.WithErrorHandler(func(error) {
			if len(f.called()) < 20 && !s.Requeue() {
				t.Error("refused")
			}
		}))
		require.NoError(t, s.Start())
		pass(time.Minute)
		require.Len(t, f.called(), 20)
	})
}
