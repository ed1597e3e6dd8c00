package selector_test

import (
	"context"
	"log/slog"
	"strings"
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

// While an error handler hangs, 1,024 errors wait besides the current one. Further ones are only logged, and the selector
// continues.
func TestErrorHandlerThatHangs(t *testing.T) {
	const waiting, beyond = 1024, 20
	testkit.Bubble(t, func(t *testing.T) {
		srv, log := zktest.NewServer(t), &testkit.Log{}
		client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.Logger(slog.LevelWarn)))
		hang := make(chan struct{})
		told, terms := 0, 0
		var s *selector.LeaderSelector
		s = elections.NewSelector(t, client, func(context.Context, *recipes.Lease) error {
			if terms++; terms == 1+waiting+beyond {
				go func() { _ = s.Close() }() // returns once the handler does
			}
			return elections.ErrWork
		}, selector.WithAutoRequeue(), selector.WithErrorHandler(func(error) { <-hang; told++ }),
			selector.WithRequeueBackoff(recipes.RetryPolicy{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond}))
		require.NoError(t, s.Start())
		bubble.Pass(20 * time.Second)
		require.Equal(t, 1+waiting+beyond, terms)
		failed, leftOut := 0, 0
		for _, line := range log.Take() {
			switch {
			case strings.HasPrefix(line, `level=ERROR msg="leader selector failed"`):
				failed++
			case strings.Contains(line, `msg="callback blocked; dropping calls" function="error handler" waiting=1024 dropped=1`):
				leftOut++
			}
		}
		require.Equal(t, beyond, failed)
		require.Equal(t, 1, leftOut)
		close(hang)
		require.NoError(t, s.Close())
		require.Equal(t, 1+waiting, told)
	})
}
