package queue_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A handover is one deletion and its event. The follower does not read the queue once more, even after a short wait.
func TestHandoverTakesOneRequest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first, _ := elections.Lead(t, testclient.Connect(t, srv))
		second := elections.StartLatch(t, testclient.Connect(t, srv))
		synctest.Wait() // no time passes
		requests := srv.Observe()
		require.NoError(t, first.Close())
		elections.Await(t, second)
		var ops []zktest.Op
		for _, r := range requests.Requests() {
			ops = append(ops, r.Op)
		}
		require.Equal(t, []zktest.Op{zktest.OpDelete}, ops)
	})
}
