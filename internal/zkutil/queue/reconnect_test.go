package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// lineUp has n sessions wait for one lock, and returns their turns.
func lineUp(t *testing.T, srv *fixture.Ensemble, n int) (turns []<-chan bubble.Outcome[*session.Entry]) {
	t.Helper()
	for range n {
		s := fixture.Connect(t, srv.Config(30*time.Second))
		turns = append(turns, bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire))
		bubble.Pass(10 * time.Millisecond)
	}
	bubble.Pass(time.Minute)
	return turns
}

// After a disconnect of all, only the contenders at the head of the queue list it. The others read two znodes, and none asks who holds the
// lock, which they know.
func TestRequestsAfterADisconnectOfAll(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const n = 40
		srv := fixture.NewEnsemble(t)
		turns := lineUp(t, srv, n)
		log := srv.Observe()
		defer log.Stop()
		for range 3 {
			srv.Disconnect()
			bubble.Pass(20 * time.Second)
		}
		require.LessOrEqual(t, log.Count(zktest.OpGetChildren2), 3*2)
		require.LessOrEqual(t, log.Count(zktest.OpGetData), 3*2*n+5)
		for i, turn := range turns {
			granted := <-turn
			require.NoError(t, granted.Err, i)
			require.NoError(t, granted.Lease.Leave())
		}
	})
}

// A waiter whose predecessors were deleted during an outage of all clients has its turn after the reconnect, and no
// other has.
func TestTurnsDuringAnOutageOfAllClients(t *testing.T) {
	for gone := range 5 {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				const n = 7
				srv := fixture.NewEnsemble(t)
				turns := lineUp(t, srv, n)
				holder := <-turns[0]
				require.NoError(t, holder.Err)
				names := bubble.Queue(srv, "/m")
				srv.Stop()
				for _, name := range names[1 : 1+gone] { // a third party deletes them
					srv.Delete(name)
				}
				require.NoError(t, srv.Server.Restart())
				bubble.Pass(2 * time.Second)
				require.NoError(t, holder.Lease.Leave())
				next := <-turns[1+gone]
				require.NoError(t, next.Err)
				bubble.Pass(10 * time.Second)
				for i := 2 + gone; i < n; i++ {
					require.Empty(t, turns[i])
				}
				require.NoError(t, next.Lease.Leave())
			})
		})
	}
}
