package selector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// logByDefault makes slog.Default write to the buffer until the end of the test.
func logByDefault(t *testing.T) *bytes.Buffer {
	t.Helper()
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	return &log
}

// With default settings, the program's log has each error and panic, with the panic's stack beside the error.
func TestFailuresAreLoggedByDefault(t *testing.T) {
	for name, c := range map[string]struct {
		take  selector.TakeLeadership
		err   string
		stack bool
	}{
		"error": {func(context.Context, *recipes.Lease) error { return elections.ErrWork }, "no database", false},
		"panic": {func(context.Context, *recipes.Lease) error { panic("boom") }, "panic: boom", true},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				log := logByDefault(t)
				srv := zktest.NewServer(t)
				client := testclient.ConnectSettled(t, srv)
				elections.StartSelector(t, client, c.take)
				require.NoError(t, client.Close())
				require.Contains(t, log.String(), "level=ERROR")
				require.Contains(t, log.String(), fmt.Sprintf("err=%q", "selector: lead "+elections.Path+": "+c.err))
				if c.stack {
					require.Contains(t, log.String(), " stack=")
				} else {
					require.NotContains(t, log.String(), " stack=")
				}
			})
		})
	}
}

func TestDiscardingLoggerSilences(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log := logByDefault(t)
		srv := zktest.NewServer(t)
		client := testclient.ConnectSettled(t, srv, recipes.WithLogger(slog.New(slog.DiscardHandler)))
		elections.StartSelector(t, client, func(context.Context, *recipes.Lease) error { panic("boom") })
		require.NoError(t, client.Close())
		require.Empty(t, log.String())
	})
}

// An error at the end of the context is reported, unless it only reports that end.
func TestErrorsBesideTheEndOfTheTermAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(ctx context.Context) error
		want string
	}{
		"joined": {func(ctx context.Context) error { return errors.Join(ctx.Err(), elections.ErrWork) }, "context canceled\nno database"},
		"joined deep": {func(ctx context.Context) error {
			return fmt.Errorf("shift: %w", errors.Join(fmt.Errorf("job: %w", ctx.Err()), fmt.Errorf("undo: %w", elections.ErrWork)))
		}, "shift: job: context canceled\nundo: no database"},
		"wrapped twice":  {func(ctx context.Context) error { return fmt.Errorf("%w: %w", elections.ErrWork, context.Cause(ctx)) }, "no database: released"},
		"panic":          {func(ctx context.Context) error { panic(ctx.Err()) }, "panic: context canceled"},
		"panic, wrapped": {func(ctx context.Context) error { panic(fmt.Errorf("job: %w", context.Cause(ctx))) }, "panic: job: released"},
		"another end":    {func(context.Context) error { return context.DeadlineExceeded }, "context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var told []error
				s := elections.StartSelector(t, testclient.ConnectSettled(t, srv), func(ctx context.Context, _ *recipes.Lease) error {
					<-ctx.Done()
					return c.end(ctx)
				}, selector.WithErrorHandler(func(err error) { told = append(told, err) }))
				s.InterruptLeadership()
				bubble.Pass(time.Second)
				require.Len(t, told, 1)
				require.EqualError(t, told[0], "selector: lead "+elections.Path+": "+c.want)
			})
		})
	}
}

// An error that only reports the end of the term is ignored, at any depth of wrapping.
func TestTheEndOfATermDeepInAnErrorIsNoFailure(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context) error{
		"chain": func(ctx context.Context) error { return fmt.Errorf("a: %w", fmt.Errorf("b: %w", ctx.Err())) },
		"tree": func(ctx context.Context) error {
			return errors.Join(fmt.Errorf("a: %w", ctx.Err()), errors.Join(context.Cause(ctx)))
		},
		"two in one": func(ctx context.Context) error { return fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx)) },
		"OpError": func(ctx context.Context) error {
			return &recipes.OpError{Op: "mutex: acquire", Path: "/a", Err: ctx.Err()}
		},
		"empty wrapper": func(ctx context.Context) error { return errors.Join(nil, ctx.Err(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				s := elections.StartSelector(t, testclient.ConnectSettled(t, srv), func(ctx context.Context, _ *recipes.Lease) error {
					<-ctx.Done()
					return end(ctx)
				}, selector.WithErrorHandler(func(err error) { t.Error(err) }))
				s.InterruptLeadership()
				bubble.Pass(time.Second)
				require.NoError(t, s.Close())
			})
		})
	}
}
