package selector_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The first term fails, and the error handler asks for another one, which succeeds. Run returns the result of the last term.
func TestRunReturnsTheOutcomeOfTheLastTerm(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		terms := 0
		take := func(context.Context, *recipes.Lease) error {
			if terms++; terms == 1 {
				return elections.ErrWork
			}
			return nil
		}
		var s *selector.LeaderSelector
		var handled []error
		s = elections.NewSelector(t, testclient.ConnectSettled(t, zktest.NewServer(t)), take, selector.WithErrorHandler(func(err error) {
			handled = append(handled, err)
			require.True(t, s.Requeue())
		}))
		require.NoError(t, s.Run(t.Context()))
		require.Equal(t, 2, terms)
		require.Len(t, handled, 1)
		require.ErrorIs(t, handled[0], elections.ErrWork)
	})
}
