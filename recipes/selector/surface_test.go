package selector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A selector knows its own znode from the moment in which it joins the queue.
func TestOwnPathAndID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		leader := create(t, testclient.ConnectSettled(t, srv), idle, selector.WithID("billing-1"))
		require.Equal(t, "billing-1", leader.ID())
		require.Empty(t, leader.Path(), "not started")
		require.NoError(t, leader.Start())
		pass(time.Second)
		client := testclient.ConnectSettled(t, srv)
		waiter := enter(t, client, idle, selector.WithAutoRequeue())
		queue, err := waiter.Participants(t.Context())
		require.NoError(t, err)
		require.Equal(t, queue[0].Path, leader.Path())
		require.Equal(t, queue[1].Path, waiter.Path())
		require.Equal(t, queue[1].ID, waiter.ID(), "that of the client")

		before := waiter.Path()
		srv.Expire(sessionOf(client))
		pass(time.Second)
		require.NotEqual(t, before, waiter.Path(), "it has joined again")
		queue, err = waiter.Participants(t.Context())
		require.NoError(t, err)
		require.Equal(t, queue[1].Path, waiter.Path())
		leader.InterruptLeadership()
		pass(time.Second)
		require.Empty(t, leader.Path(), "it has left the election")
		require.True(t, waiter.HasLeadership())
		require.Equal(t, paths(srv)[0], waiter.Path())
		require.NoError(t, waiter.Close())
		require.Empty(t, waiter.Path())
	})
}

// Observe needs no Start, and goes on until its context ends.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		leaders := create(t, testclient.ConnectSettled(t, srv), idle).Observe(ctx)
		require.Zero(t, <-leaders)
		a := enter(t, testclient.ConnectSettled(t, srv), idle, selector.WithID("a"))
		requireLeader(t, a, <-leaders)
		b := enter(t, testclient.ConnectSettled(t, srv), idle, selector.WithID("b"))
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
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.ConnectSettled(t, srv)
		done := make(chan struct{})
		s := enter(t, client, func(context.Context, *recipes.Lease) error { <-done; return nil }, selector.WithStepDownGrace(grace))
		require.ErrorIs(t, s.Start(), recipes.ErrAlreadyStarted)
		require.ErrorIs(t, s.Run(t.Context()), recipes.ErrAlreadyStarted)
		require.ErrorIs(t, s.Close(), recipes.ErrStepDownGrace)
		require.ErrorIs(t, client.Close(), recipes.ErrStepDownGrace)
		require.EqualError(t, s.Start(), "selector: start "+election+": the selector is closed")
		close(done)
		require.NoError(t, client.Close())

		s = enter(t, testclient.ConnectSettled(t, srv), idle)
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
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		told := make(chan error, 1)
		enter(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error { panic("boom") },
			selector.WithErrorHandler(func(err error) { told <- err }))
		panicked, ok := errors.AsType[*recipes.PanicError](<-told)
		require.True(t, ok)
		require.Equal(t, "boom", panicked.Value)
		require.EqualError(t, panicked, "panic: boom")
		require.Contains(t, string(panicked.Stack), "TestPanicError")
	})
}
