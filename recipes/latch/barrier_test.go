package latch_test

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

// A slow listener delays no other. The functions of each are called at once at the beginning and at the end of the
// term, and the znode is deleted after all of them return.
func TestSlowListenerHoldsUpNoOther(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		const slow = 4 * time.Second
		l, term := elections.Lead(t, testclient.Connect(t, srv), latch.WithListener(latch.Listener{
			IsLeader: func(term *recipes.Lease) {
				<-term.Context().Done()
				bubble.Pause(slow)
				j.Add("slow: IsLeader returned")
			},
			NotLeader: func() { bubble.Pause(slow); j.Add("slow: NotLeader returned") },
		}), latch.WithListener(j.Listener("quick")))
		l.AddListener(j.Listener("late"))
		bubble.Pass(0)
		require.ElementsMatch(t, []string{"quick leads", "late leads"}, j.Read())
		successor := elections.StartLatch(t, testclient.Connect(t, srv))
		<-successor.Decided()

		require.NoError(t, term.Release())
		bubble.Pass(0)
		require.ElementsMatch(t, []string{"quick ends", "late ends"}, j.Read())
		bubble.Pass(slow)
		require.Equal(t, []string{"slow: IsLeader returned"}, j.Read())
		bubble.Pass(slow - 1)
		require.Contains(t, elections.Paths(srv), term.Path())
		require.False(t, successor.HasLeadership())
		bubble.Pass(1)
		require.Equal(t, []string{"slow: NotLeader returned"}, j.Read())
		require.True(t, successor.HasLeadership())
	})
}

// The latch also waits for a listener that is removed while it works.
func TestRemovedListenerIsWaitedFor(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv)
		l := elections.NewLatch(t, client)
		done := make(chan struct{})
		remove := l.AddListener(latch.Listener{IsLeader: func(*recipes.Lease) { <-done }})
		require.NoError(t, l.Start())
		term := elections.Await(t, l)
		bubble.Pass(0)
		remove()
		require.NoError(t, term.Release())
		bubble.Pass(quiet())
		require.Equal(t, []string{term.Path()}, elections.Paths(srv))
		close(done)
		bubble.Pass(0)
		require.NotEqual(t, []string{term.Path()}, elections.Paths(srv))
	})
}
