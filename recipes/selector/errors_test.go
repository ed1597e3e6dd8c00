package selector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
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

// failures are the ways in which a function can fail, and what the owner gets to read.
var failures = map[string]struct {
	take func(ctx context.Context, term *recipes.Lease) error
	is   error
	text string
}{
	"error":           {func(context.Context, *recipes.Lease) error { return elections.ErrWork }, elections.ErrWork, "no database"},
	"panic":           {func(context.Context, *recipes.Lease) error { panic("boom") }, nil, "panic: boom"},
	"panic, an error": {func(context.Context, *recipes.Lease) error { panic(fmt.Errorf("wrapped: %w", elections.ErrWork)) }, elections.ErrWork, "panic: wrapped: no database"},
	"goexit": {
		func(context.Context, *recipes.Lease) error { runtime.Goexit(); return nil },
		nil, "the function ended its goroutine",
	},
	"its own context": {func(context.Context, *recipes.Lease) error { return context.Canceled }, context.Canceled, "context canceled"},
	"after the end": {func(_ context.Context, term *recipes.Lease) error {
		_ = term.Release()
		return elections.ErrWork
	}, elections.ErrWork, "no database"},
}

// typedNilError is an error whose methods panic for a nil pointer, which a function returns by mistake.
type typedNilError struct{ err error }

func (e *typedNilError) Error() string { return e.err.Error() }
func (e *typedNilError) Unwrap() error { return e.err }

// An error whose methods panic counts as a panic of the function.
func TestErrorThatPanics(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, told := zktest.NewServer(t), make(chan error, 1)
		s := elections.StartSelector(t, testclient.ConnectSettled(t, srv), func(ctx context.Context, _ *recipes.Lease) error {
			<-ctx.Done()
			var err *typedNilError
			return err
		}, selector.WithErrorHandler(func(err error) { told <- err }))
		bubble.Pass(time.Second)
		s.InterruptLeadership()
		var panicked *recipes.PanicError
		require.ErrorAs(t, testkit.Receive(t, told, "the panic"), &panicked)
		require.Contains(t, string(panicked.Stack), "typedNilError")
		require.NoError(t, s.Close())
	})
}

// Nor does such an error end the process during the term, or without a handler.
func TestErrorThatPanicsWithoutHandler(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		calls := make(chan struct{}, 10)
		s := elections.StartSelector(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error {
			calls <- struct{}{}
			var err *typedNilError
			return err
		}, selector.WithAutoRequeue())
		for range 2 {
			testkit.Receive(t, calls, "the next term")
		}
		require.NoError(t, s.Close())
	})
}

func TestFailuresAreReported(t *testing.T) {
	for name, c := range failures {
		for _, handled := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/handled=%v", name, handled), func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					srv := zktest.NewServer(t)
					var log bytes.Buffer
					var told []error
					client := testclient.ConnectSettled(t, srv, recipes.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
					var opts []selector.Option
					if handled {
						opts = append(opts, selector.WithErrorHandler(func(err error) { told = append(told, err) }))
					}
					s := elections.StartSelector(t, client, c.take, opts...)
					require.False(t, s.HasLeadership())
					require.Empty(t, srv.Children(elections.Path), "another may lead")
					require.NoError(t, s.Close(), "it was told already")
					require.NoError(t, client.Close())
					if !handled {
						require.Contains(t, log.String(), "level=ERROR")
						require.Contains(t, log.String(), "path="+elections.Path)
						return
					}
					require.Empty(t, log.String(), "told once")
					require.Len(t, told, 1)
					require.ErrorContains(t, told[0], "selector: lead "+elections.Path+": "+c.text)
					var failed *recipes.OpError
					require.ErrorAs(t, told[0], &failed)
					if c.is != nil {
						require.ErrorIs(t, told[0], c.is)
					}
				})
			})
		}
	}
}

// A function that stops because its term is over did not fail.
func TestTheEndOfATermIsNoFailure(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context) error{
		"nil":             func(context.Context) error { return nil },
		"error":           func(ctx context.Context) error { return ctx.Err() },
		"cause":           context.Cause,
		"wrapped error":   func(ctx context.Context) error { return fmt.Errorf("job: %w", ctx.Err()) },
		"error and cause": func(ctx context.Context) error { return errors.Join(ctx.Err(), context.Cause(ctx)) },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				var calls []time.Time
				client := testclient.ConnectSettled(t, srv)
				s := elections.StartSelector(t, client, func(ctx context.Context, _ *recipes.Lease) error {
					calls = append(calls, time.Now())
					<-ctx.Done()
					return end(ctx)
				}, selector.WithAutoRequeue(), selector.WithErrorHandler(func(err error) { t.Error(err) }))
				for _, lose := range []func(){
					s.InterruptLeadership,
					func() { srv.Expire(elections.SessionOf(client)) },
					func() { srv.Delete(elections.Paths(srv)[0]) },
					func() { srv.Delete("/services") },
				} {
					bubble.Pass(2 * time.Second) // after a shorter term there would be a pause
					lose()
					bubble.Pass(100 * time.Millisecond)
				}
				require.Len(t, calls, 5, "without a pause")
				require.NoError(t, s.Close())
			})
		})
	}
}

func TestErrorHandlerIsCalledInOrderAndBeforeCloseReturns(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		n, told := 0, 0
		s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error {
			n++
			return fmt.Errorf("failure %d", n)
		}, selector.WithAutoRequeue(), selector.WithErrorHandler(func(err error) {
			told++ // calls do not overlap
			if want := fmt.Sprintf("failure %d", told); !errors.As(err, new(*recipes.OpError)) || errors.Unwrap(err).Error() != want {
				t.Errorf("%v instead of %s", err, want)
			}
			if told == 3 {
				panic("boom")
			}
			bubble.Pause(5 * time.Second) // longer than the function needs to fail again
		}))
		require.NoError(t, s.Start())
		bubble.Pass(12 * time.Second)
		require.Less(t, told, n)
		require.NoError(t, s.Close())
		require.Equal(t, n, told)
	})
}

// Closing the client is no refusal, in any phase of a selector.
func TestClosingTheClientIsNoFailure(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		handler := selector.WithErrorHandler(func(err error) { t.Error(err) })
		for i := range 100 {
			client := testclient.ConnectSettled(t, srv)
			remove := srv.Delay(zktest.OpAny, time.Millisecond)
			for range 5 {
				require.NoError(t, elections.NewSelector(t, client, elections.Idle, selector.WithAutoRequeue(), handler).Start())
			}
			bubble.Pause(time.Duration(i) * 100 * time.Microsecond)
			require.NoError(t, client.Close())
			remove()
		}
	})
}
