package snippets

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
)

// hourly runs report at most once per hour, on all hosts together.
func hourly(ctx context.Context, client *recipes.Client, report func(context.Context, *recipes.Lease) error) error {
	o, err := once.New(client, "/jobs/report")
	if err != nil {
		return err
	}
	err = o.Do(ctx, once.Tick(time.Now(), time.Hour), report)
	if errors.Is(err, once.ErrDone) {
		return nil // another host ran the job, or is running it
	}
	return err
}
