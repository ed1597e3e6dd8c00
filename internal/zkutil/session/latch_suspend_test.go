package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Under the standard policy, a leader keeps its znode, and with it its place, through a suspension. However often its
// connection flaps, it leads again, with the same token.
func TestSuspendedLeaderKeepsItsPlace(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
		l, term := elections.Lead(t, client, latch.WithListener(j.Listener("a")))
		successor := elections.StartLatch(t, testclient.Connect(t, srv))
		<-successor.Decided()
		bubble.Pass(0)
		require.Equal(t, []string{"a leads"}, j.Read())
		before := elections.Paths(srv)
		for range 3 {
			srv.Partition(elections.SessionOf(client))
			require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrSuspended)
			require.False(t, l.HasLeadership())
			bubble.Pass(0)
			require.Equal(t, []string{"a ends"}, j.Read())
			require.Equal(t, term.Path(), l.Path())
			srv.Heal()
			next := elections.Await(t, l)
			require.NotSame(t, term, next)
			require.Equal(t, term.FencingToken(), next.FencingToken())
			require.Equal(t, term.Path(), next.Path())
			require.Equal(t, before, elections.Paths(srv))
			require.False(t, successor.HasLeadership())
			bubble.Pass(0)
			require.Equal(t, []string{"a leads"}, j.Read())
			term = next
		}
		require.NoError(t, l.Close())
		elections.Await(t, successor)
		require.Len(t, elections.Paths(srv), 1)
	})
}

// Every event that ends the znode of a suspended leader sends it to the tail.
func TestSuspendedLeaderWhoseZnodeIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		end func(srv *zktest.Server, client *recipes.Client, term *recipes.Lease)
	}{
		"deleted": {func(srv *zktest.Server, _ *recipes.Client, term *recipes.Lease) { srv.Delete(term.Path()) }},
		"expired": {func(srv *zktest.Server, client *recipes.Client, _ *recipes.Lease) {
			srv.Expire(elections.SessionOf(client))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
				l, term := elections.Lead(t, client)
				successor := elections.StartLatch(t, testclient.Connect(t, srv))
				<-successor.Decided()
				srv.Partition(elections.SessionOf(client))
				require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrSuspended)
				c.end(srv, client, term)
				srv.Heal()
				next := elections.Await(t, successor)
				require.Greater(t, next.FencingToken(), term.FencingToken())
				bubble.Pass(elections.Timeout)
				require.Len(t, elections.Paths(srv), 2)
				require.False(t, l.HasLeadership())
				require.NoError(t, successor.Close())
				require.Greater(t, elections.Await(t, l).FencingToken(), next.FencingToken())
			})
		})
	}
}

// The new term waits for the listeners of the suspended one.
func TestSuspendedWorkIsWaitedFor(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
		var j elections.Journal
		l, term := elections.Lead(t, client, latch.WithListener(latch.Listener{IsLeader: func(term *recipes.Lease) {
			j.Add("begins")
			<-term.Context().Done()
			bubble.Pause(elections.Reaction)
			j.Add("ends")
		}}))
		bubble.Pass(0)
		srv.Disconnect(elections.SessionOf(client))
		require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrSuspended)
		bubble.Pass(elections.Reaction - 1)
		require.Equal(t, []string{"begins"}, j.Read())
		require.False(t, l.HasLeadership())
		bubble.Pass(time.Second)
		require.Equal(t, []string{"ends", "begins"}, j.Read())
		require.Equal(t, term.Path(), elections.Await(t, l).Path())
	})
}

// Close ends the stay of a suspended leader as well, in every state.
func TestCloseWhileSuspended(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
		l, term := elections.Lead(t, client)
		srv.Partition(elections.SessionOf(client))
		require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrSuspended)
		bubble.Pass(elections.Tick)
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }() // ends with Close; joined below
		bubble.Pass(time.Second)
		srv.Heal()
		require.NoError(t, <-closed)
		require.Empty(t, elections.Paths(srv))
	})
}

// A policy that gives up soon applies to calls with a waiting caller. A suspension longer than an operation costs no
// place.
func TestLongSuspensionUnderABoundedPolicy(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy), recipes.WithSessionTimeout(time.Minute),
			recipes.WithOperationTimeout(time.Second), recipes.WithRetryPolicy(recipes.RetryPolicy{MaxAttempts: 1}))
		l, term := elections.Lead(t, client)
		srv.Partition(elections.SessionOf(client))
		require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrSuspended)
		bubble.Pass(15 * time.Second) // the session has as long left
		srv.Heal()
		require.Equal(t, term.Path(), elections.Await(t, l).Path())
	})
}
