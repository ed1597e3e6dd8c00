package elections

import (
	"context"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// Callbacks has the callbacks of client-go. The comments have its lines.
type Callbacks struct {
	OnStartedLeading func(ctx context.Context)
	OnNewLeader      func(identity string)
}

// RunElection takes part in the election until ctx ends, term after term. A term ends when OnStartedLeading returns.
func RunElection(ctx context.Context, client *recipes.Client, identity string, callbacks Callbacks) error {
	lead := func(ctx context.Context, _ *recipes.Lease) error {
		callbacks.OnStartedLeading(ctx)
		return nil
	}
	s, err := selector.New(client, "/services/report", lead, // leaderelection.NewLeaderElector(config)
		selector.WithID(identity), selector.WithAutoRequeue()) // config.Lock: a resourcelock.LeaseLock with an Identity
	if err != nil {
		return err
	}
	go func() { // ends with ctx
		for leader := range s.Observe(ctx) {
			callbacks.OnNewLeader(leader.ID)
		}
	}()
	return s.Run(ctx) // elector.Run(ctx), in a loop
}
