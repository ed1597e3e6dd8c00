package snippets

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// serveAndElect serves and takes part in an election. If one of both fails, the other ends, too.
func serveAndElect(ctx context.Context, election *selector.LeaderSelector, serve func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(ctx) })
	group.Go(func() error { return election.Run(ctx) }) // returns after the work of the term
	return group.Wait()
}
