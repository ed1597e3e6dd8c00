package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// standbysOfAProcess is the number of standby sessions per process: 52 in four processes. Each waits for minutes without a
// write, and has to prove itself when its turn arrives.
const standbysOfAProcess = 13

// leads bounds how long a standby holds the lock. Every standby has a turn once a minute.
const leads = 2 * time.Second

// firstStandby is the number of the first standby among the contenders of its process.
const firstStandby = 50

// standBy runs the standbys of a process until they are done. Their sessions stand until closeAll is called.
func (w *worker) standBy(ctx context.Context) (closeAll func() error, err error) {
	var all sync.WaitGroup
	clients, errs := make([]*recipes.Client, standbysOfAProcess), make([]error, standbysOfAProcess)
	for i := range clients {
		c := w.contender(firstStandby+i, standbyPath)
		all.Go(func() {
			if clients[i], errs[i] = w.connect(ctx); clients[i] != nil {
				errs[i] = c.standBy(ctx, clients[i])
			}
			if errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", c.name, errs[i])
			}
		})
	}
	all.Wait()
	return func() (err error) {
		for _, client := range clients {
			if client != nil {
				err = errors.Join(err, client.Close())
			}
		}
		return err
	}, errors.Join(errs...)
}

// standBy waits for the lock, and holds it for a while, again and again.
func (c *contender) standBy(ctx context.Context, client *recipes.Client) error {
	return c.again(ctx, client, func() time.Duration { return c.upTo(15 * time.Millisecond) }, c.lead)
}

// lead holds the lock for a while, unless the lease ends or the process is to finish.
func (c *contender) lead(lease *recipes.Lease) {
	ctx, cancel := context.WithTimeout(lease.Context(), c.upTo(leads))
	defer cancel()
	select {
	case <-ctx.Done():
	case <-c.finish:
	}
}
