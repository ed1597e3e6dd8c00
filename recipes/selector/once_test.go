package selector_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// logged returns a client and what it logs.
func logged(t *testing.T, srv *zktest.Server) (*recipes.Client, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return testclient.ConnectSettled(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})))), &log
}

// Without a handler, the error that Run returns is not logged as well.
func TestRunReturnsAnErrorOrLogsIt(t *testing.T) {
	late := func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return errWork }
	for name, c := range map[string]struct {
		take     selector.TakeLeadership
		opts     []selector.Option
		end      func(s *selector.LeaderSelector, cancel func())
		want     error
		isLogged bool
	}{
		"failure":          {func(context.Context, *recipes.Lease) error { return errWork }, nil, nil, errWork, false},
		"panic":            {func(context.Context, *recipes.Lease) error { panic(errWork) }, nil, nil, errWork, false},
		"interrupted":      {late, nil, func(s *selector.LeaderSelector, _ func()) { s.InterruptLeadership() }, errWork, false},
		"cancelled":        {late, nil, func(_ *selector.LeaderSelector, cancel func()) { cancel() }, errWork, false},
		"cancelled, auto":  {late, []selector.Option{selector.WithAutoRequeue()}, func(_ *selector.LeaderSelector, cancel func()) { cancel() }, errWork, false},
		"closed meanwhile": {late, nil, func(s *selector.LeaderSelector, _ func()) { _ = s.Close() }, recipes.ErrClosed, true},
		"gives up": {
			func(context.Context, *recipes.Lease) error { return errWork },
			[]selector.Option{selector.WithAutoRequeue(), selector.WithRequeueBackoff(recipes.RetryPolicy{MaxAttempts: 1})},
			nil, errWork, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, log := logged(t, zktest.NewServer(t))
				s := create(t, client, c.take, c.opts...)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				result := run(ctx, s)
				pass(time.Second)
				if c.end != nil {
					c.end(s, cancel)
				}
				err := resultOf(t, result)
				require.ErrorIs(t, err, c.want)
				require.NoError(t, client.Close())
				if c.isLogged {
					require.NotErrorIs(t, err, errWork)
					require.Contains(t, log.String(), errWork.Error())
				} else {
					require.Empty(t, log.String())
				}
			})
		})
	}
}

// An error that comes when Run has returned, because of the grace, is logged.
func TestErrorAfterRunIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, log := logged(t, zktest.NewServer(t))
		done := make(chan struct{})
		s := create(t, client, func(context.Context, *recipes.Lease) error { <-done; return errWork }, selector.WithStepDownGrace(grace))
		ctx, cancel := context.WithCancel(t.Context())
		result := run(ctx, s)
		pass(time.Second)
		cancel()
		require.ErrorIs(t, resultOf(t, result), recipes.ErrStepDownGrace)
		require.Empty(t, log.String())
		close(done)
		require.NoError(t, s.Close())
		require.NoError(t, client.Close())
		require.Contains(t, log.String(), errWork.Error())
	})
}
