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
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A selector knows its own znode from the moment in which it joins the queue.
func TestOwnPathAndID(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		leader := elections.NewSelector(t, testclient.ConnectSettled(t, srv), elections.Idle, selector.WithID("billing-1"))
		require.Equal(t, "billing-1", leader.ID())
		require.Empty(t, leader.Path(), "not started")
		require.NoError(t, leader.Start())
		bubble.Pass(time.Second)
		client := testclient.ConnectSettled(t, srv)
		waiter := elections.StartSelector(t, client, elections.Idle, selector.WithAutoRequeue())
		queue, err := waiter.Participants(t.Context())
		require.NoError(t, err)
		require.Equal(t, queue[0].Path, leader.Path())
		require.Equal(t, queue[1].Path, waiter.Path())
		require.Equal(t, queue[1].ID, waiter.ID(), "that of the client")

		before := waiter.Path()
		srv.Expire(elections.SessionOf(client))
		bubble.Pass(time.Second)
		require.NotEqual(t, before, waiter.Path(), "it has joined again")
		queue, err = waiter.Participants(t.Context())
		require.NoError(t, err)
		require.Equal(t, queue[1].Path, waiter.Path())
		leader.InterruptLeadership()
		bubble.Pass(time.Second)
		require.Empty(t, leader.Path(), "it has left the election")
		require.True(t, waiter.HasLeadership())
		require.Equal(t, elections.Paths(srv)[0], waiter.Path())
		require.NoError(t, waiter.Close())
		require.Empty(t, waiter.Path())
	})
}

func TestNewRefusesBadOptions(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client := testclient.Connect(t, zktest.NewServer(t))
		for want, opt := range map[string]selector.Option{
			"nil option":                          nil,
			"id of 65537 bytes":                   selector.WithID(string(make([]byte, 64<<10+1))),
			"step-down grace: 0s is not positive": selector.WithStepDownGrace(0),
			"max hold: -1s is not positive":       selector.WithMaxHold(-time.Second),
			"requeue backoff: negative field":     selector.WithRequeueBackoff(recipes.RetryPolicy{InitialInterval: -1}),
			"error handler: nil":                  selector.WithErrorHandler(nil),
		} {
			_, err := selector.New(client, elections.Path, elections.Idle, opt)
			require.ErrorContains(t, err, want)
			require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		}
		_, err := selector.New(client, elections.Path, nil)
		require.ErrorContains(t, err, "nil function")
		_, err = selector.New(nil, elections.Path, elections.Idle)
		require.ErrorContains(t, err, "the client is nil")
	})
}

// Observe needs no Start, and continues until its context ends.
func TestObserve(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		leaders := elections.NewSelector(t, testclient.ConnectSettled(t, srv), elections.Idle).Observe(ctx)
		require.Zero(t, <-leaders)
		a := elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle, selector.WithID("a"))
		requireLeader(t, a, <-leaders)
		b := elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle, selector.WithID("b"))
		require.NoError(t, a.Close())
		requireLeader(t, b, <-leaders)
		require.NoError(t, b.Close())
		require.Zero(t, <-leaders)
		cancel()
		_, open := <-leaders
		require.False(t, open)
	})
}

func requireLeader(t *testing.T, want *selector.LeaderSelector, got recipes.Participant) {
	t.Helper()
	require.Equal(t, recipes.Participant{ID: want.ID(), Path: want.Path(), Leader: true, Token: got.Token, Since: got.Since}, got)
	require.NotZero(t, got.Token)
	require.Zero(t, time.Since(got.Since).Truncate(time.Minute))
}

// The errors that a program asks for by name.
func TestErrorsByName(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.ConnectSettled(t, srv)
		done := make(chan struct{})
		s := elections.StartSelector(t, client, func(context.Context, *recipes.Lease) error { <-done; return nil }, selector.WithStepDownGrace(elections.Grace))
		require.ErrorIs(t, s.Start(), recipes.ErrAlreadyStarted)
		require.ErrorIs(t, s.Run(t.Context()), recipes.ErrAlreadyStarted)
		require.ErrorIs(t, s.Close(), recipes.ErrStepDownGrace)
		require.ErrorIs(t, client.Close(), recipes.ErrStepDownGrace)
		require.EqualError(t, s.Start(), "selector: start "+elections.Path+": the selector is closed")
		close(done)
		require.NoError(t, client.Close())

		s = elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle)
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete {
				return zktest.Fault{Lost: zktest.NoAnswer}
			}
			return zktest.Fault{}
		})
		require.ErrorIs(t, s.Close(), recipes.ErrNodeNotDeleted)
	})
}

// A handler gets at the stack of a panic, which is not part of the text.
func TestPanicError(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		told := make(chan error, 1)
		elections.StartSelector(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error { panic("boom") },
			selector.WithErrorHandler(func(err error) { told <- err }))
		panicked, ok := zkutil.AsType[*recipes.PanicError](<-told)
		require.True(t, ok)
		require.Equal(t, "boom", panicked.Value)
		require.EqualError(t, panicked, "panic: boom")
		require.Contains(t, string(panicked.Stack), "TestPanicError")
	})
}
