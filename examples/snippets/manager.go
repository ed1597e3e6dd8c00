package snippets

import (
	"context"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// starter is the method of controller-runtime's manager.Manager that runs all controllers until ctx ends.
type starter interface {
	Start(ctx context.Context) error
}

// runManager runs the controllers on the one pod that leads. In manager.Options, newManager leaves LeaderElection false, sets
// GracefulShutdownTimeout to -1, so that Start waits for the controllers, and Controller.SkipNameValidation to true.
func runManager(ctx context.Context, client *recipes.Client, newManager func() (starter, error)) error {
	lead := func(ctx context.Context, _ *recipes.Lease) error {
		manager, err := newManager() // one for each term, with controllers of the same names
		if err != nil {
			return err
		}
		return manager.Start(ctx) // returns when ctx ends and the controllers are done
	}
	election, err := selector.New(client, "/services/controller", lead, selector.WithAutoRequeue())
	if err != nil {
		return err
	}
	return election.Run(ctx)
}
