package election_test

import (
	"sync/atomic"
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

// The znode of a candidate is deleted just before it lists the queue to ask others. It asks with its next znode.
func TestCandidateDeletedBeforeItAsks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		leader, _ := elections.Lead(t, testclient.Connect(t, srv), latch.WithID("a"), latch.WithPriority(0))
		client := testclient.Connect(t, srv)
		l := elections.StartLatch(t, client, latch.WithID("b"), latch.WithPriority(5))
		bubble.Pass(bubble.Moment)
		own := elections.Paths(srv)[1]
		var isDeleted atomic.Bool
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Session == elections.SessionOf(client) && r.Op == zktest.OpGetChildren2 && isDeleted.CompareAndSwap(false, true) {
				srv.Delete(own)
			}
			return zktest.Fault{}
		})
		bubble.Pass(time.Minute)
		require.True(t, isDeleted.Load())
		require.True(t, l.HasLeadership())
		require.False(t, leader.HasLeadership())
		require.NotContains(t, elections.Paths(srv), own)
	})
}

// The work of a leader may continue for hours after another client deleted the znode. A candidate with a priority sends no more requests
// meanwhile than any other, and is steered again afterwards.
func TestLeaderWithoutItsZnodeIsIdle(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client, done := testclient.Connect(t, srv), make(chan struct{})
		l, term := elections.Lead(t, client, latch.WithID("a"), latch.WithPriority(0), latch.WithListener(latch.Listener{
			IsLeader: func(*recipes.Lease) { <-done },
		}))
		bubble.Pass(bubble.Moment)
		srv.Delete(term.Path())
		successor := elections.StartLatch(t, testclient.Connect(t, srv), latch.WithID("b"), latch.WithPriority(0))
		elections.Await(t, successor)
		var reads atomic.Int32
		restore := srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Session == elections.SessionOf(client) && r.Op == zktest.OpGetData {
				reads.Add(1)
			}
			return zktest.Fault{}
		})
		bubble.Pass(time.Hour)
		restore()
		close(done)
		require.Zero(t, reads.Load())
		bubble.Pass(time.Minute)
		require.NoError(t, successor.TransferTo(t.Context(), "a"))
		require.True(t, l.HasLeadership())
		require.NoError(t, l.TransferTo(t.Context(), "b"))
		bubble.Pass(time.Minute)
		require.True(t, successor.HasLeadership())
	})
}
