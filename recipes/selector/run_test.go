package selector_test

import (
	"context"
	"sync"
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

// A context may end with any error as its cause, such as a typed nil pointer that another function of an errgroup returned by
// mistake.
func TestRunWithACauseWhoseMethodsPanic(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		testkit.Bubble(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(wait, func() { cancel((*typedNilError)(nil)) })
			take := func(ctx context.Context, _ *recipes.Lease) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			require.NoError(t, elections.NewSelector(t, testclient.ConnectSettled(t, zktest.NewServer(t)), take).Run(ctx))
		})
	}
}

// Run returns nil when its context ends and everything stops in order, from any state of the selector.
func TestRunEndsInOrderWithItsContext(t *testing.T) {
	for name, c := range map[string]struct {
		take selector.TakeLeadership
		wait time.Duration
	}{
		"at once": {elections.Idle, 0},
		"leading": {elections.Idle, time.Minute},
		"leading, and slow to stop": {func(ctx context.Context, _ *recipes.Lease) error {
			<-ctx.Done()
			bubble.Pause(10 * time.Second)
			return nil
		}, time.Minute},
		"in a pause": {func(context.Context, *recipes.Lease) error { return elections.ErrWork }, 10*time.Second + 1},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(c.wait, cancel)
				s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), c.take, selector.WithAutoRequeue(), selector.WithErrorHandler(elections.Discard))
				require.NoError(t, s.Run(ctx))
				require.Error(t, ctx.Err())
				require.Empty(t, srv.Children(elections.Path))
				require.ErrorIs(t, s.Run(t.Context()), recipes.ErrClosed)
			})
		})
	}
	t.Run("waiting", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			srv := zktest.NewServer(t)
			elections.StartSelector(t, testclient.ConnectSettled(t, srv), elections.Idle)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Minute, cancel)
			s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), elections.Idle)
			require.NoError(t, s.Run(ctx))
			require.Len(t, srv.Children(elections.Path), 1)
			require.Empty(t, s.Path())
		})
	})
	t.Run("ended before", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			srv := zktest.NewServer(t)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error { return elections.ErrWork })
			require.NoError(t, s.Run(ctx))
			require.Empty(t, srv.Children(elections.Path))
		})
	})
}

func TestRunFailsWhenAnotherCallStopsIt(t *testing.T) {
	for name, stop := range map[string]func(t *testing.T, client *recipes.Client, s *selector.LeaderSelector){
		"selector": func(t *testing.T, _ *recipes.Client, s *selector.LeaderSelector) {
			t.Helper()
			require.NoError(t, s.Close())
		},
		"client": func(t *testing.T, client *recipes.Client, _ *selector.LeaderSelector) {
			t.Helper()
			require.NoError(t, client.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.ConnectSettled(t, srv)
				s := elections.NewSelector(t, client, elections.Idle)
				result := make(chan error, 1)
				go func() { result <- s.Run(t.Context()) }() // ends with the selector; joined below
				bubble.Pass(time.Second)
				require.ErrorContains(t, s.Run(t.Context()), "selector: start "+elections.Path+": already started")
				require.True(t, s.HasLeadership(), "which changes nothing")
				stop(t, client, s)
				err := <-result
				require.ErrorIs(t, err, recipes.ErrClosed)
				require.ErrorContains(t, err, "selector: run "+elections.Path)
			})
		})
	}
}

func TestRunDoesNotWaitForeverForTheFunction(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		done := make(chan struct{})
		defer close(done)
		s := elections.NewSelector(t, testclient.ConnectSettled(t, srv), func(context.Context, *recipes.Lease) error { <-done; return nil }, selector.WithStepDownGrace(elections.Grace))
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorContains(t, s.Run(ctx), "still running")
		require.Equal(t, time.Minute+elections.Grace, time.Since(start))
	})
}

// group works like errgroup.Group: the first error ends the context of all.
type group struct {
	sync.WaitGroup

	once   sync.Once
	cancel context.CancelFunc
	err    error
}

func (g *group) run(fn func() error) {
	g.Go(func() { // ends with fn; joined by Wait
		if err := fn(); err != nil {
			g.once.Do(func() { g.err = err; g.cancel() })
		}
	})
}

// One of several selectors gives up, and stops the whole service in order.
func TestRunInAGroup(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		g := group{cancel: cancel}
		client := testclient.ConnectSettled(t, srv)
		var j elections.Journal
		for i, take := range []selector.TakeLeadership{
			j.Leader("a"), j.Leader("b"), func(context.Context, *recipes.Lease) error { return elections.ErrWork },
		} {
			s, err := selector.New(client, elections.Path+"/"+string(rune('0'+i)), take, selector.WithAutoRequeue(),
				selector.WithErrorHandler(elections.Discard), selector.WithRequeueBackoff(recipes.RetryPolicy{MaxAttempts: 5}))
			require.NoError(t, err)
			g.run(func() error { return s.Run(ctx) })
		}
		g.Wait()
		require.ErrorIs(t, g.err, elections.ErrWork)
		require.ElementsMatch(t, []string{"a leads", "b leads", "a ends: context canceled", "b ends: context canceled"}, j.ReadSettled())
		for i := range 3 {
			require.Empty(t, srv.Children(elections.Path+"/"+string(rune('0'+i))))
		}
	})
}

// A context is code of the user's, and may ask the selector.
func TestRunWithAContextThatAsksTheSelector(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		asking := &askingContext{Context: ctx}
		s := elections.NewSelector(t, testclient.ConnectSettled(t, zktest.NewServer(t)), elections.Idle)
		asking.ask = func() {
			s.HasLeadership()
			s.Requeue()
			_ = s.Path()
		}
		time.AfterFunc(time.Minute, cancel)
		require.NoError(t, s.Run(asking))
		require.ErrorIs(t, s.Run(asking), recipes.ErrClosed)
	})
}

// askingContext calls ask in each of its methods.
type askingContext struct {
	context.Context //nolint:containedctx // a context of a user

	ask func()
}

func (c *askingContext) Deadline() (time.Time, bool) { c.ask(); return c.Context.Deadline() }
func (c *askingContext) Done() <-chan struct{}       { c.ask(); return c.Context.Done() }
func (c *askingContext) Err() error                  { c.ask(); return c.Context.Err() }
func (c *askingContext) Value(key any) any           { c.ask(); return c.Context.Value(key) }
