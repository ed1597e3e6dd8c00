package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// basketKey is the key of the contender for a basket in the context of its attempt.
type basketKey struct{}

// tracePart records when one mutex of a basket is acquired, which may be long before all are. A Locker around the mutex would keep it out of
// the transaction.
func tracePart(ctx context.Context, e recipes.AcquireEnd) {
	if c, _ := ctx.Value(basketKey{}).(*contender); c != nil && e.Err == nil {
		c.record(Event{What: Part, By: c.name, Path: e.Path, Token: e.Token})
	}
}

// basket holds two or three of the mutexes as one, and changes all their rows.
func (c *contender) basket(ctx context.Context) error {
	for last := false; !last && ctx.Err() == nil; linger(c.upTo(30*time.Millisecond), ctx.Done()) {
		last = c.finishing()
		wanted := []string{basketPath1, basketPath2, basketPath3}
		if without := c.rand.IntN(2 * len(wanted)); without < len(wanted) {
			wanted = slices.Delete(wanted, without, without+1)
		}
		m, err := multilock.NewMutexes(c.client, wanted, mutex.WithID(c.name))
		if err != nil {
			return err
		}
		var lease *multilock.Lease
		err = c.attempt(context.WithValue(ctx, basketKey{}, c), last,
			func(ctx context.Context) (err error) { lease, err = m.Acquire(ctx); return err },
			func(ctx context.Context) (err error) { lease, err = m.TryAcquire(ctx); return err },
		)
		if err != nil {
			if !errors.Is(err, recipes.ErrSessionLost) && !errors.Is(err, recipes.ErrNodeDeleted) { // else a part was lost
				c.note(Event{What: Failed, Try: c.tries, Text: err.Error()})
			}
			last = false
			continue
		}
		c.hold(ctx, wanted, lease)
	}
	return ctx.Err()
}

// hold works behind the mutexes of a basket, and releases them.
func (c *contender) hold(ctx context.Context, wanted []string, lease *multilock.Lease) {
	parts, holders := lease.Leases(), make([]*contender, len(wanted))
	for i, path := range wanted {
		holder := *c
		holder.path, holder.row = path, row{c.db, path}
		if i > 0 { // the first has the name of the attempt
			holder.name = fmt.Sprintf("%s+%d", c.name, i)
		}
		holders[i] = &holder
		holder.took(parts[i])
	}
	for i, holder := range holders {
		holder.guard(ctx, parts[i])
	}
	c.work(parts[len(parts)-1], 5*time.Millisecond)
	for i, holder := range holders {
		holder.guard(ctx, parts[i]) // lost or not, the row decides
	}
	releaseTogether(holders, lease)
}
