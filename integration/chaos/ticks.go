package chaos

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
)

// ticksPath is the job of package once. It is not among the locks, because a table counts the runs of each tick.
const ticksPath = "/chaos/ticks"

// tick is the time between two ticks. A process abandons a tick after tickPatience, which is shorter than a restore: the
// restored record of the latest tick is older, and only a process that waited since before would run a tick again.
const tick, tickPatience = 500 * time.Millisecond, time.Second

// ticks runs each tick at most once in all processes, until the process is to finish.
func (c *contender) ticks(ctx context.Context) error {
	job, err := once.New(c.client, ticksPath, once.WithID(c.name))
	if err != nil {
		return err
	}
	for ; ctx.Err() == nil && !c.finishing(); linger(c.upTo(tick), ctx.Done()) {
		occurrence := time.Now().UTC().Truncate(tick).Format("2006-01-02T15:04:05.000Z")
		c.runTick(ctx, job, occurrence)
	}
	return ctx.Err()
}

func (c *contender) runTick(ctx context.Context, job *once.Once, occurrence string) {
	ctx, cancel := context.WithTimeout(ctx, tickPatience)
	defer cancel()
	_ = job.Do(ctx, occurrence, func(ctx context.Context, _ *recipes.Lease) error { // mostly done by others, or lost in a fault
		isFirst, err := runTick(context.WithoutCancel(ctx), c.db, occurrence, c.name)
		switch {
		case err != nil:
			c.note(Event{What: Unsure, Text: err.Error()})
		case isFirst:
			c.note(Event{What: Ticked, Text: occurrence})
		default:
			c.note(Event{What: Repeated, Text: occurrence})
		}
		linger(c.upTo(tick/4), ctx.Done())
		return err
	})
}
