package frameworks

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// Schedule enqueues the periodic tasks that register adds, on the one host that leads. It runs until ctx ends.
func Schedule(ctx context.Context, client *recipes.Client, redis asynq.RedisConnOpt, register func(*asynq.Scheduler) error) error {
	lead := func(ctx context.Context, _ *recipes.Lease) error {
		scheduler := asynq.NewScheduler(redis, nil) // one for each term: after a Shutdown it can't start again
		if err := register(scheduler); err != nil {
			return err
		}
		if err := scheduler.Start(); err != nil {
			return err
		}
		<-ctx.Done() // the process no longer leads
		scheduler.Shutdown()
		return nil
	}
	s, err := selector.New(client, "/services/scheduler", lead, selector.WithAutoRequeue())
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
