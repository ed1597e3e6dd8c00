package otelzkrecipes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// opError is an error like those of recipes, with the path in its text.
func opError(err error) error {
	return &recipes.OpError{Op: "mutex: acquire", Path: "/secret/path", Err: err}
}

// acquire calls the hooks of an acquisition, and returns the context of its lease.
func (p *probe) acquire(end recipes.AcquireEnd) context.Context {
	p.Helper()
	trace := p.Trace()
	ctx := trace.AcquireStart(p.Context(), recipes.AcquireStart{Recipe: end.Recipe, Name: end.Name, Path: end.Path, Try: end.Try})
	trace.AcquireEnd(ctx, end)
	return ctx
}

func TestOutcomesOfAnAcquisition(t *testing.T) {
	tests := []struct {
		err                error
		outcome, errorType string
		status             codes.Code
	}{
		{nil, "acquired", "", codes.Unset},
		{recipes.ErrNotAcquired, "not_acquired", "not_acquired", codes.Unset},
		{&recipes.WaitError{Err: fmt.Errorf("%w: %w", context.DeadlineExceeded, zk.ErrNoServer)}, "timeout", "deadline_exceeded", codes.Error},
		{&recipes.WaitError{Err: context.Canceled}, "canceled", "canceled", codes.Unset},
		{&recipes.WaitError{Err: fmt.Errorf("%w: %w", context.Canceled, recipes.ErrSessionLost)}, "error", "session_lost", codes.Error},
		{recipes.ErrClosed, "canceled", "closed", codes.Unset},
		{recipes.ErrSequenceExhausted, "error", "sequence_exhausted", codes.Error},
		{recipes.ErrOtherLayout, "error", "other_layout", codes.Error},
		{recipes.ErrInvalidPath, "error", "invalid_path", codes.Error},
		{recipes.ErrInvalidArgument, "error", "invalid_argument", codes.Error},
		{recipes.ErrReleased, "error", "released", codes.Error},
		{recipes.ErrSuspended, "error", "suspended", codes.Error},
		{recipes.ErrNodeDeleted, "error", "node_deleted", codes.Error},
		{recipes.ErrMaxHold, "error", "max_hold", codes.Error},
		{zk.ErrNoAuth, "error", "no_auth", codes.Error},
		{zk.ErrAuthFailed, "error", "auth_failed", codes.Error},
		{zk.ErrNoServer, "error", "no_server", codes.Error},
		{zk.ErrConnectionClosed, "error", "connection_closed", codes.Error},
		{errors.New("what nobody knows"), "error", "_OTHER", codes.Error},
	}
	for _, test := range tests {
		t.Run(test.outcome+" "+test.errorType, func(t *testing.T) {
			p := newProbe(t)
			end := recipes.AcquireEnd{Recipe: "mutex", Name: "goods", Path: "/secret/path", Waited: time.Second}
			attributes := "zkrecipes.lock.name=goods,zkrecipes.outcome=" + test.outcome + ",zkrecipes.recipe=mutex"
			if test.err != nil {
				end.Err = opError(test.err)
				attributes = "error.type=" + test.errorType + "," + attributes
			}
			p.acquire(end)
			p.requirePoints("zkrecipes.lock.wait_time", points{attributes: 1})
			p.requirePoints("zkrecipes.lock.pending_requests", points{})
			span := p.spans.Ended()[0]
			require.Equal(t, "acquire goods", span.Name())
			require.Equal(t, test.status, span.Status().Code)
			require.NotContains(t, span.Status().Description, "secret")
			require.Empty(t, span.Events())
		})
	}
}

func TestOutcomesOfALease(t *testing.T) {
	tests := []struct {
		cause              error
		outcome, errorType string
	}{
		{nil, "released", ""},
		{recipes.ErrClosed, "closed", ""},
		{recipes.ErrFailed, "failed", ""},
		{recipes.ErrMaxHold, "max_hold", ""},
		{recipes.ErrSessionLost, "lost", "session_lost"},
		{recipes.ErrSuspended, "lost", "suspended"},
		{recipes.ErrNodeDeleted, "lost", "node_deleted"},
		{errors.New("what nobody knows"), "lost", "_OTHER"},
	}
	for _, test := range tests {
		t.Run(test.outcome+" "+test.errorType, func(t *testing.T) {
			p := newProbe(t)
			lease := p.acquire(recipes.AcquireEnd{Recipe: "mutex", Name: "goods"})
			p.requirePoints("zkrecipes.lock.count", points{"zkrecipes.lock.name=goods,zkrecipes.recipe=mutex": 1})
			p.Trace().LeaseEnd(lease, recipes.LeaseEnd{Recipe: "mutex", Name: "goods", Held: time.Minute, Cause: test.cause})
			p.requirePoints("zkrecipes.lock.count", points{})
			attributes, lost := "zkrecipes.lock.name=goods,zkrecipes.outcome="+test.outcome+",zkrecipes.recipe=mutex", points{}
			if test.outcome == "lost" {
				attributes = "error.type=" + test.errorType + "," + attributes
				lost["error.type="+test.errorType+",zkrecipes.lock.name=goods,zkrecipes.recipe=mutex"] = 1
			}
			p.requirePoints("zkrecipes.lock.hold_time", points{attributes: 1})
			p.requirePoints("zkrecipes.lock.lost", lost)
		})
	}
}

// A waiting acquisition is pending, and has an open span.
func TestPendingRequests(t *testing.T) {
	p := newProbe(t)
	trace := p.Trace()
	start := recipes.AcquireStart{Recipe: "mutex", Name: "goods"}
	first, second := trace.AcquireStart(t.Context(), start), trace.AcquireStart(t.Context(), start)
	p.requirePoints("zkrecipes.lock.pending_requests", points{"zkrecipes.lock.name=goods,zkrecipes.recipe=mutex": 2})
	require.Empty(t, p.spans.Ended())
	trace.AcquireEnd(first, recipes.AcquireEnd{Recipe: "mutex", Name: "goods"})
	p.requirePoints("zkrecipes.lock.pending_requests", points{"zkrecipes.lock.name=goods,zkrecipes.recipe=mutex": 1})
	trace.AcquireEnd(second, recipes.AcquireEnd{Recipe: "mutex", Name: "goods"})
	p.requirePoints("zkrecipes.lock.pending_requests", points{})
	require.Len(t, p.spans.Ended(), 2)
}

// A re-entry has a span, and is part of the outer lease.
func TestReentry(t *testing.T) {
	p := newProbe(t)
	end := recipes.AcquireEnd{Recipe: "mutex", Name: "goods"}
	p.acquire(end)
	end.Reentrant = true
	inner := p.acquire(end)
	p.Trace().LeaseEnd(inner, recipes.LeaseEnd{Recipe: "mutex", Name: "goods"})
	p.requirePoints("zkrecipes.lock.wait_time", points{"zkrecipes.lock.name=goods,zkrecipes.outcome=acquired,zkrecipes.recipe=mutex": 1})
	p.requirePoints("zkrecipes.lock.count", points{"zkrecipes.lock.name=goods,zkrecipes.recipe=mutex": 1})
	require.NotContains(t, p.collect(), "zkrecipes.lock.hold_time")
	require.Len(t, p.spans.Ended(), 2)
}

// A term of leadership is a lease; terms that begin are counted.
func TestElection(t *testing.T) {
	for _, recipe := range []string{"latch", "selector"} {
		t.Run(recipe, func(t *testing.T) {
			p := newProbe(t)
			attributes := "zkrecipes.lock.name=billing,zkrecipes.recipe=" + recipe
			start := recipes.AcquireStart{Recipe: recipe, Name: "billing"}
			for term := range 2 {
				waiting := p.Trace().AcquireStart(t.Context(), start)
				require.Equal(t, points{attributes: 0}, p.collect()["zkrecipes.election.leader"], "0 until it leads")
				require.Equal(t, points{attributes: float64(term)}, p.collect()["zkrecipes.election.transitions"])
				p.Trace().AcquireEnd(waiting, recipes.AcquireEnd{Recipe: recipe, Name: "billing"})
				require.Equal(t, points{attributes: 1}, p.collect()["zkrecipes.election.leader"])
				require.Equal(t, points{attributes: float64(term + 1)}, p.collect()["zkrecipes.election.transitions"])
				p.Trace().LeaseEnd(waiting, recipes.LeaseEnd{Recipe: recipe, Name: "billing"})
				require.Equal(t, points{attributes: 0}, p.collect()["zkrecipes.election.leader"])
			}
		})
	}
	p := newProbe(t)
	p.acquire(recipes.AcquireEnd{Recipe: "mutex", Name: "goods"})
	require.NotContains(t, p.collect(), "zkrecipes.election.leader", "a mutex has no leader")
}

// Counters exist before the first event, so that the first event is an increase.
func TestCountersStartAtZero(t *testing.T) {
	p := newProbe(t)
	p.Trace().AcquireStart(t.Context(), recipes.AcquireStart{Recipe: "mutex", Name: "goods"})
	require.Equal(t, points{
		"error.type=node_deleted,zkrecipes.lock.name=goods,zkrecipes.recipe=mutex": 0,
		"error.type=session_lost,zkrecipes.lock.name=goods,zkrecipes.recipe=mutex": 0,
		"error.type=suspended,zkrecipes.lock.name=goods,zkrecipes.recipe=mutex":    0,
	}, p.collect()["zkrecipes.lock.lost"])
}

func TestLockWithoutAName(t *testing.T) {
	p := newProbe(t)
	p.acquire(recipes.AcquireEnd{Recipe: "mutex", Path: "/secret/path"})
	p.requirePoints("zkrecipes.lock.count", points{"zkrecipes.recipe=mutex": 1})
	require.Equal(t, "acquire", p.spans.Ended()[0].Name())
}

func TestStateChanges(t *testing.T) {
	p := newProbe(t)
	change := p.Trace().StateChange
	change(recipes.StateChange{From: recipes.Suspended, To: recipes.Connected, Server: "zk1:2181", NewSession: true})
	for _, name := range []string{"zkrecipes.session.reconnects", "zkrecipes.session.expirations"} {
		require.Equal(t, points{"server.address=zk1": 0}, p.collect()[name], "the first connection")
	}
	change(recipes.StateChange{From: recipes.Connected, To: recipes.Suspended, Server: "zk1:2181"})
	change(recipes.StateChange{From: recipes.Suspended, To: recipes.Reconnected, Server: "zk2:2181", LostServer: "zk1:2181"})
	p.requirePoints("zkrecipes.session.reconnects", points{"server.address=zk1": 1})
	p.requirePoints("zkrecipes.session.expirations", points{})
	change(recipes.StateChange{From: recipes.Suspended, To: recipes.Lost, Server: "zk2:2181", Err: recipes.ErrSessionLost})
	change(recipes.StateChange{From: recipes.Lost, To: recipes.Reconnected, Server: "[::1]:2181", LostServer: "zk2:2181", NewSession: true})
	change(recipes.StateChange{From: recipes.Connected, To: recipes.Lost})
	p.requirePoints("zkrecipes.session.expirations", points{"server.address=zk2": 1, "": 1})
	p.requirePoints("zkrecipes.session.reconnects", points{"server.address=zk1": 1, "server.address=zk2": 1})
	for _, server := range []string{"zk2/10.0.0.2:2181", "zk2/[fd00::2]:2181"} {
		change(recipes.StateChange{From: recipes.Suspended, To: recipes.Reconnected, Server: "zk3:2181", LostServer: server})
	}
	p.requirePoints("zkrecipes.session.reconnects", points{"server.address=zk1": 1, "server.address=zk2": 3})
}

// Permits that are acquired together are as many leases.
func TestLeasesOfSeveralPermits(t *testing.T) {
	p := newProbe(t)
	lease := p.acquire(recipes.AcquireEnd{Recipe: "semaphore", Name: "goods", Permits: 3})
	p.requirePoints("zkrecipes.lock.count", points{"zkrecipes.lock.name=goods,zkrecipes.recipe=semaphore": 3})
	p.Trace().LeaseEnd(lease, recipes.LeaseEnd{Recipe: "semaphore", Name: "goods", Permits: 3})
	p.requirePoints("zkrecipes.lock.count", points{})
}

// A counter of a server has a value before its first increase, also if the server was reached by a reconnect.
func TestCountersOfAServerStartAtZero(t *testing.T) {
	p := newProbe(t)
	change := p.Trace().StateChange
	requireBoth := func(name string, want points) {
		t.Helper()
		require.Equal(t, want, p.collect()[name])
	}
	change(recipes.StateChange{To: recipes.Connected, Server: "zk1/10.0.0.1:2181"})
	requireBoth("zkrecipes.session.reconnects", points{"server.address=zk1": 0})
	change(recipes.StateChange{To: recipes.Suspended, Server: "zk1/10.0.0.1:2181"})
	change(recipes.StateChange{To: recipes.Reconnected, Server: "zk2/10.0.0.2:2181", LostServer: "zk1/10.0.0.1:2181"})
	requireBoth("zkrecipes.session.reconnects", points{"server.address=zk1": 1, "server.address=zk2": 0})
	requireBoth("zkrecipes.session.expirations", points{"server.address=zk1": 0, "server.address=zk2": 0})
	change(recipes.StateChange{To: recipes.Lost, Server: "zk2/10.0.0.2:2181"})
	requireBoth("zkrecipes.session.expirations", points{"server.address=zk1": 0, "server.address=zk2": 1})
}
