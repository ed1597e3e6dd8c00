package snippets

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// runLeader takes part in the election until SIGTERM, and then hands over.
func runLeader(ctx context.Context, client *recipes.Client, take selector.TakeLeadership) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	election, err := selector.New(client, "/services/billing", take,
		selector.WithAutoRequeue(), selector.WithStepDownGrace(20*time.Second))
	if err != nil {
		return err
	}
	err = election.Run(ctx) // after SIGTERM: take's ctx ends, take returns, the next pod leads
	return errors.Join(err, client.Close())
}
