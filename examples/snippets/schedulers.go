package snippets

import (
	"context"
	"errors"
	"log/slog"

	"github.com/robfig/cron/v3"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
)

// everyNight runs report at 03:00 UTC, on one of the hosts. Call it before c.Start.
func everyNight(ctx context.Context, c *cron.Cron, o *once.Once, report func(context.Context, *recipes.Lease) error) error {
	var id cron.EntryID
	id, err := c.AddFunc("CRON_TZ=UTC 0 3 * * *", func() {
		err := o.Do(ctx, once.At(c.Entry(id).Prev), report) // Prev is the tick, the same on all hosts
		if err != nil && !errors.Is(err, once.ErrDone) {
			slog.Error("no report", "err", err)
		}
	})
	return err
}
