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

// A term ends after its bound, in the order of every step-down, and the candidates take turns.
func TestMaxHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const maxHold, work = time.Minute, 3 * time.Second
		srv := zktest.NewServer(t)
		listener := latch.Listener{IsLeader: func(term *recipes.Lease) {
			<-term.Context().Done()
			bubble.Pause(work)
		}}
		first, term := elections.Lead(t, testclient.ConnectSettled(t, srv), latch.WithMaxHold(maxHold), latch.WithListener(listener))
		began := time.Now()
		second := elections.StartLatch(t, testclient.Connect(t, srv), latch.WithMaxHold(maxHold))
		require.ErrorIs(t, bubble.Cause(t, term), recipes.ErrMaxHold)
		require.Equal(t, maxHold, time.Since(began))
		require.NoError(t, term.Release(), "the step-down is under way")
		require.False(t, first.HasLeadership())
		bubble.Pass(work - time.Second)
		require.Empty(t, elections.Leaders(first, second), "the listener has not returned")
		bubble.Pass(2 * time.Second)
		require.Equal(t, []*latch.LeaderLatch{second}, elections.Leaders(first, second))
		bubble.Pass(maxHold)
		require.Equal(t, []*latch.LeaderLatch{first}, elections.Leaders(first, second))
		require.NoError(t, first.Close())
		require.NoError(t, second.Close())
		_, err := latch.New(testclient.Connect(t, srv), elections.Path, latch.WithMaxHold(0))
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
	})
}
