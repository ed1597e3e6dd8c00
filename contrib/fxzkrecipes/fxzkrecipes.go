package fxzkrecipes

import (
	"context"
	"errors"

	"go.uber.org/fx"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// Client is a module that provides a *recipes.Client as [NewClient] makes it.
func Client(servers []string, opts ...recipes.Option) fx.Option {
	return fx.Module("zkrecipes", fx.Provide(func(lc fx.Lifecycle) (*recipes.Client, error) {
		return NewClient(lc, servers, opts...)
	}))
}

// Latch is a module that provides a *latch.LeaderLatch as [NewLatch] makes it, and needs a *recipes.Client. As in all of fx,
// the latch takes part in the election only if a constructor or a function of fx.Invoke needs it.
func Latch(path string, opts ...latch.Option) fx.Option {
	return fx.Module("zkrecipes-latch", fx.Provide(func(lc fx.Lifecycle, c *recipes.Client) (*latch.LeaderLatch, error) {
		return NewLatch(lc, c, path, opts...)
	}))
}

// NewClient returns a client as recipes.Open makes it: it connects in the background. The start of the application waits for
// the first connection, and fails with the error of Client.Await if there is none when the context of the start ends. The stop is
// Client.Shutdown. For an application that has to start without a server, use recipes.Open.
func NewClient(lc fx.Lifecycle, servers []string, opts ...recipes.Option) (*recipes.Client, error) {
	c, err := recipes.Open(servers, opts...)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			if err := c.Await(ctx); err != nil {
				return errors.Join(err, c.Close()) // fx calls no OnStop after a failed OnStart
			}
			return nil
		},
		OnStop: c.Shutdown,
	})
	return c, nil
}

// NewLatch returns a latch that starts and closes with the application. Its start does not wait for the election.
func NewLatch(lc fx.Lifecycle, c *recipes.Client, path string, opts ...latch.Option) (*latch.LeaderLatch, error) {
	l, err := latch.New(c, path, opts...)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StartStopHook(l.Start, l.Close)) // no context: the election outlives that of the start
	return l, nil
}

// NewSelector returns a selector that starts and closes with the application. The context of a term ends when the stop
// begins, not with that of the start, and has none of its values. The stop waits for take.
func NewSelector(lc fx.Lifecycle, c *recipes.Client, path string, take selector.TakeLeadership, opts ...selector.Option) (*selector.LeaderSelector, error) {
	s, err := selector.New(c, path, take, opts...)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StartStopHook(s.Start, s.Close)) // no context, as in NewLatch
	return s, nil
}
