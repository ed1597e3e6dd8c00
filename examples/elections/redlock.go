package elections

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// TryLock waits at most wait for the lock. No lease time has to be guessed: the lock is held until its release, or
// until the session is lost.
func TryLock(ctx context.Context, client *recipes.Client, wait time.Duration) (lease *recipes.Lease, ok bool, err error) {
	lock, err := mutex.New(client, "/locks/report")
	if err != nil {
		return nil, false, err
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	lease, err = lock.Acquire(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, false, nil
	}
	return lease, err == nil, err
}
