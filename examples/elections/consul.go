package elections

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// LeadOnce waits for the lock, and leads until lead returns. The comments have the lines of Consul.
func LeadOnce(ctx context.Context, client *recipes.Client, lead func(lost <-chan struct{}, token int64) error) (err error) {
	lock, err := mutex.New(client, "/services/report", mutex.WithID("report-1")) // LockOpts(&api.LockOptions{Key: key, Value: id})
	if err != nil {
		return err
	}
	lease, err := lock.Acquire(ctx) // lost, err := lock.Lock(ctx.Done())
	if err != nil {
		return err // recipes.ErrNotAcquired at the end of ctx, where Lock returns nil, nil
	}
	defer func() { err = errors.Join(err, lease.Release()) }() // lock.Unlock()
	return lead(lease.Context().Done(), lease.FencingToken())  // lead(lost, …): the LockIndex takes a read of the key
}
