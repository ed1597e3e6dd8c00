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

// A listener panics during the suspension that ended its term. A leader whose work fails keeps no znode, so the successor
// leads, and the latch joins again at the tail.
func TestPanicInASuspension(t *testing.T) {
	for name, trouble := range elections.Broken() {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
				l, term := elections.Lead(t, client, latch.WithListener(latch.Listener{IsLeader: func(term *recipes.Lease) {
					<-term.Context().Done()
					trouble()
				}}))
				successor := elections.StartLatch(t, testclient.Connect(t, srv))
				<-successor.Decided()
				srv.Partition(elections.SessionOf(client))
				require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrSuspended)
				bubble.Pass(elections.Tick)
				srv.Heal()
				require.Greater(t, elections.Await(t, successor).FencingToken(), term.FencingToken())
				bubble.Pass(time.Minute)
				require.Len(t, elections.Paths(srv), 2)
				require.NotEqual(t, term.Path(), l.Path())
				require.False(t, l.HasLeadership())
				require.NoError(t, successor.Close())
				require.Greater(t, elections.Await(t, l).FencingToken(), term.FencingToken())
			})
		})
	}
}

// A suspended latch is closed before the reconnect. From then on it has no znode and does not lead again, and the successor
// leads as soon as the znode is deleted.
func TestCloseBeforeTheSuspensionIsOver(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client := testclient.Connect(t, srv, recipes.WithErrorPolicy(recipes.StandardErrorPolicy), recipes.WithSessionTimeout(time.Minute))
		terms := 0
		l, term := elections.Lead(t, client, latch.WithListener(latch.Listener{IsLeader: func(*recipes.Lease) { terms++ }}))
		successor := elections.StartLatch(t, testclient.Connect(t, srv))
		<-successor.Decided()
		srv.Partition(elections.SessionOf(client))
		require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrSuspended)
		bubble.Pass(elections.Tick)
		start, closed := time.Now(), make(chan error, 1)
		go func() { closed <- l.Close() }() // ends with Close; joined below
		bubble.Pass(3 * time.Second)
		require.Empty(t, closed)
		require.Empty(t, l.Path(), "it is being deleted")
		srv.Heal()
		require.NoError(t, <-closed)
		require.Less(t, time.Since(start), 10*time.Second)
		bubble.Pass(0)
		require.True(t, successor.HasLeadership())
		require.Equal(t, 1, terms)
		require.Len(t, elections.Paths(srv), 1)
	})
}
