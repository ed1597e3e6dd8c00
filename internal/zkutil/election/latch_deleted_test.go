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
