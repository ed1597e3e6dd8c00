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
	err = o.Do(ctx, once.At(time.Now().Truncate(time.Hour)), report)
	if errors.Is(err, once.ErrDone) {
		return nil // another pod has done it, or does it now
	}
	return err
}
