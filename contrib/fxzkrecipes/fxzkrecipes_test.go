package fxzkrecipes_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/contrib/fxzkrecipes"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

const path = "/elections/report"

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where clients log
	goleak.VerifyTestMain(m)
}

// newApp returns an application with a client of server.
func newApp(t *testing.T, server *zktest.Server, opts ...fx.Option) *fx.App {
	t.Helper()
	client := fxzkrecipes.Client([]string{server.Addr()}, recipes.WithDialer(server.Dialer()))
	app := fx.New(append(opts, fx.NopLogger, client)...)
	require.NoError(t, app.Err())
	return app
}

// start starts an application with a context that ends right after the start, as that of App.Run does.
func start(t *testing.T, app *fx.App) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fx.DefaultTimeout)
	defer cancel()
	require.NoError(t, app.Start(ctx))
}

// wait advances the virtual clock.
func wait(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

func TestLatchLeadsUntilStop(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		var client *recipes.Client
		var election *latch.LeaderLatch
		app := newApp(t, server, fxzkrecipes.Latch(path), fx.Populate(&client, &election))
		require.Equal(t, recipes.ErrNotStarted, errors.Unwrap(mustFail(election.Await(t.Context()))))
		start(t, app)
		require.Equal(t, recipes.Connected, client.State())
		wait(10 * time.Minute)
		require.True(t, election.HasLeadership())
		require.NoError(t, app.Stop(t.Context()))
		require.Equal(t, recipes.Closed, client.State())
		server.RequireIdle(t)
	})
}

func mustFail(_ *recipes.Lease, err error) error { return err }

func TestTermIsIndependentOfStart(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		var events []string
		var cause error
		work := func(ctx context.Context, _ *recipes.Lease) error {
			events = append(events, "leads")
			<-ctx.Done()
			cause = context.Cause(ctx)
			time.Sleep(5 * time.Second) //nolint:forbidigo // virtual time
			events = append(events, "returns")
			return context.Cause(ctx)
		}
		app := newApp(t, server, fx.Invoke(func(lc fx.Lifecycle, client *recipes.Client) error {
			lc.Append(fx.StopHook(func() { events = append(events, "database closes") })) // needed by work, and so made before
			_, err := fxzkrecipes.NewSelector(lc, client, path, work)
			return err
		}))
		start(t, app)
		wait(10 * time.Minute)
		require.Equal(t, []string{"leads"}, events)
		require.NoError(t, app.Stop(t.Context()))
		require.Equal(t, []string{"leads", "returns", "database closes"}, events)
		require.ErrorIs(t, cause, recipes.ErrReleased)
		server.RequireIdle(t)
	})
}

func TestContextBoundsStop(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		finish := make(chan struct{})
		app := newApp(t, zktest.NewServer(t), fx.Invoke(func(lc fx.Lifecycle, client *recipes.Client) error {
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			_, err := fxzkrecipes.NewSelector(lc, client, path, func(context.Context, *recipes.Lease) error {
				<-finish
				return nil
			})
			return err
		}))
		t.Cleanup(func() { close(finish) })
		start(t, app)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, app.Stop(ctx), context.DeadlineExceeded)
	})
}

func TestStartFailsWithoutServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		refused := errors.New("connection refused")
		var client *recipes.Client
		app := fx.New(fx.NopLogger, fx.Populate(&client), fxzkrecipes.Client([]string{"zk1:2181"},
			recipes.WithDialer(zk.Dialer(func(string, string, time.Duration) (net.Conn, error) { return nil, refused }))))
		require.NoError(t, app.Err(), "the client connects in the background")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := app.Start(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		wait(time.Minute)
		require.Equal(t, recipes.Closed, client.State())
	})
}

func TestFailedStartOfOtherHookStopsClient(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		failure := errors.New("no disk")
		var client *recipes.Client
		app := newApp(t, server, fx.Populate(&client), fx.Invoke(func(lc fx.Lifecycle) {
			lc.Append(fx.StartHook(func() error { return failure }))
		}))
		require.ErrorIs(t, app.Start(t.Context()), failure)
		require.Equal(t, recipes.Closed, client.State())
		server.RequireIdle(t)
	})
}

func TestRefusedArguments(t *testing.T) {
	require.ErrorIs(t, fx.New(fx.NopLogger, fxzkrecipes.Client(nil), fx.Invoke(func(*recipes.Client) {})).Err(), recipes.ErrInvalidArgument)
	lc := fxtest.NewLifecycle(t)
	_, err := fxzkrecipes.NewLatch(lc, nil, path)
	require.ErrorIs(t, err, recipes.ErrInvalidArgument)
	_, err = fxzkrecipes.NewSelector(lc, nil, path, func(context.Context, *recipes.Lease) error { return nil })
	require.ErrorIs(t, err, recipes.ErrInvalidArgument)
}
