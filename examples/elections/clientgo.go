package elections

import (
	"context"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// Callbacks has the callbacks of client-go.
type Callbacks struct {
	OnStartedLeading func(ctx context.Context)
	OnNewLeader      func(identity string)
}

// RunElection takes part in the election until ctx ends, term after term. A term ends when
// OnStartedLeading has returned.
func RunElection(ctx context.Context, client *recipes.Client, identity string, callbacks Callbacks) error {
	lead := func(ctx context.Context, _ *recipes.Lease) error {
		callbacks.OnStartedLeading(ctx)
		return nil
	}
	s, err := selector.New(client, "/services/report", lead, selector.WithID(identity), selector.WithAutoRequeue())
	if err != nil {
		return err
	}
	go func() { // ends with ctx
		for leader := range s.Observe(ctx) {
			callbacks.OnNewLeader(leader.ID)
		}
	}()
	return s.Run(ctx)
}
