package selector_test

import (
	"context"
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

// A term ends after its bound. The selector joins again, or Run returns the reason for its end.
func TestMaxHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const maxHold = time.Minute
		srv := zktest.NewServer(t)
		var j elections.Journal
		first := elections.StartSelector(t, testclient.Connect(t, srv), j.Leader("first"), selector.WithMaxHold(maxHold), selector.WithAutoRequeue())
		once := elections.NewSelector(t, testclient.Connect(t, srv), j.Leader("once"), selector.WithMaxHold(maxHold))
		done := make(chan error, 1)
		go func() { done <- once.Run(t.Context()) }()
		bubble.Pass(maxHold + time.Second)
		bubble.Pass(maxHold + time.Second)
		require.ErrorIs(t, <-done, recipes.ErrMaxHold)
		require.Equal(t, []string{
			"first leads", "first ends: " + recipes.ErrMaxHold.Error(), "once leads", "once ends: " + recipes.ErrMaxHold.Error(), "first leads",
		}, j.ReadSettled())
		require.NoError(t, first.Close())
		_, err := selector.New(testclient.Connect(t, srv), elections.Path, elections.Idle, selector.WithMaxHold(-1))
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
	})
}

// Work that ignores the end of its term keeps others from leading, and is reported.
func TestMaxHoldOfStubbornWork(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		errs := make(chan error, 10)
		stubborn := elections.StartSelector(t, testclient.Connect(t, srv), func(context.Context, *recipes.Lease) error { bubble.Pause(time.Minute); return nil },
			selector.WithMaxHold(time.Second), selector.WithErrorHandler(func(err error) { errs <- err }))
		next := elections.StartSelector(t, testclient.Connect(t, srv), elections.Idle)
		bubble.Pass(50 * time.Second)
		require.False(t, next.HasLeadership())
		require.ErrorIs(t, <-errs, recipes.ErrWorkGoesOn)
		bubble.Pass(10 * time.Second)
		require.True(t, next.HasLeadership())
		require.NoError(t, stubborn.Close())
		require.NoError(t, next.Close())
	})
}

// A bound without a unit, such as WithMaxHold(30), is over before the function begins. Run returns, and takes part once.
func TestMaxHoldThatIsOverAtOnce(t *testing.T) {
	srv := zktest.NewServer(t)
	client := testclient.Connect(t, srv)
	log := srv.Observe()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := elections.NewSelector(t, client, elections.Idle, selector.WithMaxHold(30)).Run(ctx)
	require.ErrorIs(t, err, recipes.ErrMaxHold)
	require.NoError(t, ctx.Err())
	require.LessOrEqual(t, len(log.Requests(zktest.OpCreate)), 2, "the first one may find no directory")
}
