package gocronzkrecipes

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
)

// OnceTask returns the function of a task, for gocron.NewTask, that runs fn at most once for each tick on all hosts together.
// The tick is once.Tick of the time of the call and period, which has to be that of the job, such as 24 hours for a job at
// midnight UTC. Each job needs a Once with a path of its own. The scheduler must have no elector and no locker.
//
// If another host has started the tick, the task returns nil without a call of fn. Otherwise it returns the error of once.Do,
// which gocron passes to AfterJobRunsWithError: the error of fn, or the reason why fn was not called, such as ErrRunning with
// once.WithSkip. A panic of fn is recorded as a failure, and panics on: see gocron.AfterJobRunsWithPanic.
//
// For a schedule without a period, such as one by months or in local time, call once.Do in the task, with an occurrence that all
// hosts name alike, such as the date.
//
// OnceTask panics if period is not positive.
func OnceTask(o *once.Once, period time.Duration, fn func(context.Context, *recipes.Lease) error) func(context.Context) error {
	once.Tick(time.Time{}, period) // panics now, and not at the first tick
	return func(ctx context.Context) error {
		err := o.Do(ctx, once.Tick(time.Now(), period), fn)
		if errors.Is(err, once.ErrDone) {
			return nil // another host did the work, or does so now
		}
		return err
	}
}
