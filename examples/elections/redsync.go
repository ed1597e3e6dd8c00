package elections

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// Import works under the lock, for which it waits at most 5 s. The comments have the lines of redsync.
func Import(ctx context.Context, client *recipes.Client, work func(ctx context.Context, token int64) error) error {
	lock, err := mutex.New(client, "/locks/import") // lock := rs.NewMutex("import", redsync.WithExpiry(time.Minute))
	if err != nil {
		return err
	}
	return lock.DoWithin(ctx, 5*time.Second, // redsync.WithTries, redsync.WithRetryDelay
		func(ctx context.Context, lease *recipes.Lease) error { // err := lock.LockContext(ctx)
			return work(ctx, lease.FencingToken()) // and a goroutine with lock.ExtendContext, which ends the work if that fails
		}) // ok, err := lock.UnlockContext(ctx)
}
