package selector_test

import (
	"bytes"
	"context"
	"log/slog"
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

// logged returns a client and its log.
func logged(t *testing.T, srv *zktest.Server) (*recipes.Client, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return testclient.ConnectSettled(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})))), &log
}

// Without a handler, the error that Run returns is not logged as well.
func TestRunReturnsAnErrorOrLogsIt(t *testing.T) {
	late := func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return elections.ErrWork }
	for name, c := range map[string]struct {
		take     selector.TakeLeadership
		opts     []selector.Option
		end      func(s *selector.LeaderSelector, cancel func())
		want     error
		isLogged bool
	}{
		"failure":          {func(context.Context, *recipes.Lease) error { return elections.ErrWork }, nil, nil, elections.ErrWork, false},
		"panic":            {func(context.Context, *recipes.Lease) error { panic(elections.ErrWork) }, nil, nil, elections.ErrWork, false},
		"interrupted":      {late, nil, func(s *selector.LeaderSelector, _ func()) { s.InterruptLeadership() }, elections.ErrWork, false},
		"cancelled":        {late, nil, func(_ *selector.LeaderSelector, cancel func()) { cancel() }, elections.ErrWork, false},
		"cancelled, auto":  {late, []selector.Option{selector.WithAutoRequeue()}, func(_ *selector.LeaderSelector, cancel func()) { cancel() }, elections.ErrWork, false},
		"closed meanwhile": {late, nil, func(s *selector.LeaderSelector, _ func()) { _ = s.Close() }, recipes.ErrClosed, true},
		"gives up": {
			func(context.Context, *recipes.Lease) error { return elections.ErrWork },
			[]selector.Option{selector.WithAutoRequeue(), selector.WithRequeueBackoff(recipes.RetryPolicy{MaxAttempts: 1})},
			nil, elections.ErrWork, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				client, log := logged(t, zktest.NewServer(t))
				s := elections.NewSelector(t, client, c.take, c.opts...)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				result := run(ctx, s)
				bubble.Pass(time.Second)
				if c.end != nil {
					c.end(s, cancel)
				}
				err := resultOf(t, result)
				require.ErrorIs(t, err, c.want)
				require.NoError(t, client.Close())
				if c.isLogged {
					require.NotErrorIs(t, err, elections.ErrWork)
					require.Contains(t, log.String(), elections.ErrWork.Error())
				} else {
					require.Empty(t, log.String())
				}
			})
		})
	}
}

// An error after the return of Run, because of the grace, is logged.
func TestErrorAfterRunIsLogged(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client, log := logged(t, zktest.NewServer(t))
		done := make(chan struct{})
		s := elections.NewSelector(t, client, func(context.Context, *recipes.Lease) error { <-done; return elections.ErrWork }, selector.WithStepDownGrace(elections.Grace))
		ctx, cancel := context.WithCancel(t.Context())
		result := run(ctx, s)
		bubble.Pass(time.Second)
		cancel()
		require.ErrorIs(t, resultOf(t, result), recipes.ErrStepDownGrace)
		require.Empty(t, log.String())
		close(done)
		require.NoError(t, s.Close())
		require.NoError(t, client.Close())
		require.Contains(t, log.String(), elections.ErrWork.Error())
	})
}
