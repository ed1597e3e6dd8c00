package latch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Under the standard policy a leader keeps its znode, and with it its place, through a
// suspension: however often its connection flaps, it leads again, with the same token.
func TestSuspendedLeaderKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
		l, term := lead(t, client, latch.WithListener(j.listener("a")))
		successor := enter(t, testclient.Connect(t, srv))
		<-successor.Decided()
		pass(0)
		require.Equal(t, []string{"a leads"}, j.read())
		before := paths(srv)
		for range 3 {
			srv.Partition(sessionOf(client))
			require.ErrorIs(t, ended(t, term), recipes.ErrSuspended)
			require.False(t, l.HasLeadership())
			pass(0)
			require.Equal(t, []string{"a ends"}, j.read())
			require.Equal(t, term.Path(), l.Path())
			srv.Heal()
			next := await(t, l)
			require.NotSame(t, term, next)
			require.Equal(t, term.FencingToken(), next.FencingToken())
			require.Equal(t, term.Path(), next.Path())
			require.Equal(t, before, paths(srv))
			require.False(t, successor.HasLeadership())
			pass(0)
			require.Equal(t, []string{"a leads"}, j.read())
			term = next
		}
		require.NoError(t, l.Close())
		await(t, successor)
		require.Len(t, paths(srv), 1)
	})
}

// What ends the znode of a suspended leader sends it to the tail.
func TestSuspendedLeaderWhoseZnodeGoes(t *testing.T) {
	for name, c := range map[string]struct {
		end func(srv *zktest.Server, client *recipes.Client, term *recipes.Lease)
	}{
		"deleted": {func(srv *zktest.Server, _ *recipes.Client, term *recipes.Lease) { srv.Delete(term.Path()) }},
		"expired": {func(srv *zktest.Server, client *recipes.Client, _ *recipes.Lease) { srv.Expire(sessionOf(client)) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
				l, term := lead(t, client)
				successor := enter(t, testclient.Connect(t, srv))
				<-successor.Decided()
				srv.Partition(sessionOf(client))
				require.ErrorIs(t, ended(t, term), recipes.ErrSuspended)
				c.end(srv, client, term)
				srv.Heal()
				next := await(t, successor)
				require.Greater(t, next.FencingToken(), term.FencingToken())
				pass(timeout)
				require.Len(t, paths(srv), 2)
				require.False(t, l.HasLeadership())
				require.NoError(t, successor.Close())
				require.Greater(t, await(t, l).FencingToken(), next.FencingToken())
			})
		})
	}
}

// The new term waits for the listeners of the one that was suspended.
func TestSuspendedWorkIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
		var j journal
		l, term := lead(t, client, latch.WithListener(latch.Listener{IsLeader: func(term *recipes.Lease) {
			j.add("begins")
			<-term.Context().Done()
			pause(reaction)
			j.add("ends")
		}}))
		pass(0)
		srv.Disconnect(sessionOf(client))
		require.ErrorIs(t, ended(t, term), recipes.ErrSuspended)
		pass(reaction - 1)
		require.Equal(t, []string{"begins"}, j.read())
		require.False(t, l.HasLeadership())
		pass(time.Second)
		require.Equal(t, []string{"ends", "begins"}, j.read())
		require.Equal(t, term.Path(), await(t, l).Path())
	})
}

// Close ends the stay of a suspended leader as well, whatever it waits for.
func TestCloseWhileSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
		l, term := lead(t, client)
		srv.Partition(sessionOf(client))
		require.ErrorIs(t, ended(t, term), recipes.ErrSuspended)
		pass(tick)
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }() // ends with Close; joined below
		pass(time.Second)
		srv.Heal()
		require.NoError(t, <-closed)
		require.Empty(t, paths(srv))
	})
}

// A policy that gives up soon is for calls that somebody waits for: a suspension that is longer
// than an operation costs no place.
func TestLongSuspensionUnderABoundedPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy), recipes.WithSessionTimeout(time.Minute),
			recipes.WithOperationTimeout(time.Second), recipes.WithRetryPolicy(recipes.RetryPolicy{MaxAttempts: 1}))
		l, term := lead(t, client)
		srv.Partition(sessionOf(client))
		require.ErrorIs(t, ended(t, term), recipes.ErrSuspended)
		pass(15 * time.Second) // the session has as long left
		srv.Heal()
		require.Equal(t, term.Path(), await(t, l).Path())
	})
}
