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

// A slow listener delays no other: the functions of each are called at once at the begin and the end
// of the term. The znode is deleted when all have returned.
func TestSlowListenerHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j journal
		const slow = 4 * time.Second
		l, term := lead(t, testclient.Connect(t, srv), latch.WithListener(latch.Listener{
			IsLeader:  func(term *recipes.Lease) { <-term.Context().Done(); pause(slow); j.add("slow: IsLeader returned") },
			NotLeader: func() { pause(slow); j.add("slow: NotLeader returned") },
		}), latch.WithListener(j.listener("quick")))
		l.AddListener(j.listener("late"))
		pass(0)
		require.ElementsMatch(t, []string{"quick leads", "late leads"}, j.read())
		successor := enter(t, testclient.Connect(t, srv))
		<-successor.Decided()

		require.NoError(t, term.Release())
		pass(0)
		require.ElementsMatch(t, []string{"quick ends", "late ends"}, j.read())
		pass(slow)
		require.Equal(t, []string{"slow: IsLeader returned"}, j.read())
		pass(slow - 1)
		require.Contains(t, paths(srv), term.Path())
		require.False(t, successor.HasLeadership())
		pass(1)
		require.Equal(t, []string{"slow: NotLeader returned"}, j.read())
		require.True(t, successor.HasLeadership())
	})
}

// A listener that is removed while it works is waited for all the same.
func TestRemovedListenerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l := create(t, client)
		done := make(chan struct{})
		remove := l.AddListener(latch.Listener{IsLeader: func(*recipes.Lease) { <-done }})
		require.NoError(t, l.Start())
		term := await(t, l)
		pass(0)
		remove()
		require.NoError(t, term.Release())
		pass(time.Hour)
		require.Equal(t, []string{term.Path()}, paths(srv))
		close(done)
		pass(0)
		require.NotEqual(t, []string{term.Path()}, paths(srv))
	})
}
