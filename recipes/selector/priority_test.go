package selector_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A selector yields to a higher priority and to a transfer, by its ordinary step-down, and joins again.
func TestPriorityAndTransfer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var j elections.Journal
		low := elections.StartSelector(t, testclient.Connect(t, srv), j.Leader("low"), selector.WithID("low"), selector.WithPriority(1), selector.WithAutoRequeue())
		elections.StartSelector(t, testclient.Connect(t, srv), j.Leader("none"), selector.WithID("none"), selector.WithPriority(0), selector.WithAutoRequeue())
		elections.StartSelector(t, testclient.Connect(t, srv), j.Leader("high"), selector.WithID("high"), selector.WithPriority(2), selector.WithAutoRequeue())
		bubble.Pass(time.Minute)
		require.Equal(t, []string{"low leads", "low ends: released", "high leads"}, j.ReadSettled())
		require.NoError(t, low.TransferTo(t.Context(), "none"))
		bubble.Pass(testkit.Shorter(time.Hour, 10*time.Minute))
		require.Equal(t, []string{"high ends: released", "none leads"}, j.ReadSettled())
		require.ErrorIs(t, low.TransferTo(t.Context(), "nobody"), recipes.ErrNoCandidate)
		participants, err := low.Participants(t.Context())
		require.NoError(t, err)
		require.Len(t, participants, 3)
		_, err = selector.New(testclient.Connect(t, srv), elections.Path, elections.Idle, selector.WithPriority(1<<30))
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
	})
}
