package session_test

import (
	"context"
	"math/rand/v2"
	"sync"
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

// The connection ends in the instant of the grant, before the function starts. The function is not called for that
// term, and the participant stays in the election.
func TestLossBetweenGrantAndFunction(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		srv.Put(elections.Path, nil)
		client := testclient.ConnectSettled(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
		for range testkit.Shorter(300, 60) {
			var calls atomic.Int32
			s := elections.NewSelector(t, client, func(ctx context.Context, _ *recipes.Lease) error {
				calls.Add(1)
				return elections.Idle(ctx, nil)
			})
			slow := srv.Delay(zktest.OpGetChildren2, 10*time.Millisecond)
			require.NoError(t, s.Start())
			time.AfterFunc(10*time.Millisecond, func() { srv.Disconnect() })
			bubble.Pause(10 * time.Millisecond)
			slow()
			bubble.Pass(elections.Timeout)
			require.Equal(t, int32(1), calls.Load())
			require.NoError(t, s.Close())
			require.Empty(t, srv.Children(elections.Path))
		}
	})
}

// For any concurrent calls and any events of the session, the function never runs twice at a time, and the selector
// continues.
func TestTheFunctionNeverOverlapsItself(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var running, terms atomic.Int32
		client := testclient.ConnectSettled(t, srv)
		work := func(ctx context.Context, _ *recipes.Lease) error {
			if running.Add(1) > 1 {
				t.Error("overlap")
			}
			defer running.Add(-1)
			if terms.Add(1)%10 == 0 {
				return elections.ErrWork
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(rand.IntN(50)) * time.Millisecond):
			}
			bubble.Pause(time.Duration(rand.IntN(20)) * time.Millisecond)
			return nil
		}
		s := elections.StartSelector(t, client, work, selector.WithAutoRequeue(), selector.WithErrorHandler(elections.Discard),
			selector.WithRequeueBackoff(recipes.RetryPolicy{InitialInterval: time.Millisecond, MaxInterval: 5 * time.Millisecond}))
		var group sync.WaitGroup
		expire := func() {
			if id := elections.SessionOf(client); id != 0 { // between two sessions
				srv.Expire(id)
			}
		}
		wipe := func() { deleteAll(srv, elections.Paths(srv)) }
		requeue := func() { s.Requeue() }
		disconnect := func() { srv.Disconnect() }
		for _, call := range []func(){requeue, s.AutoRequeue, s.InterruptLeadership, expire, disconnect, wipe} {
			group.Go(func() { // ends by itself; joined below
				for range testkit.Shorter(200, 50) {
					bubble.Pause(time.Duration(1+rand.IntN(50)) * time.Millisecond)
					call()
				}
			})
		}
		group.Wait()
		before := terms.Load()
		bubble.Pass(time.Minute)
		require.Greater(t, terms.Load(), before)
		require.LessOrEqual(t, len(srv.Children(elections.Path)), 1)
	})
}

func deleteAll(srv *zktest.Server, paths []string) {
	for _, path := range paths {
		srv.Delete(path)
	}
}
