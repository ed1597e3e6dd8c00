package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// The nemesis works in bouts. The lulls between them are free of faults for so long that no fault excuses the first
// contender of a queue.
const (
	bout = 45 * time.Second // or a little longer
	lull = 3 * SessionTimeout
	// looks is how often a lull shows what the servers show.
	looks = 3
)

// harm lets the nemesis work, to the end of the last bout.
func (r *run) harm(ctx context.Context, n *Nemesis, h *History) error {
	if r.Peer == "" { // which have no tokens
		if err := n.staleHolder(ctx, r.clients); err != nil {
			return err
		}
	}
	bouts := max(2, int((r.Length+lull)/(bout+lull)))
	length := (r.Length+lull)/time.Duration(bouts) - lull
	if length <= 0 {
		return fmt.Errorf("chaos: %v is too short for two bouts", r.Length)
	}
	hands := []func(context.Context) error{n.serverHand(rand.New(rand.NewPCG(r.Seed, 1)))}
	half := len(r.clients) / 2
	for i, clients := range [][]*client{r.clients[:half], r.clients[half:]} {
		hands = append(hands, n.clientHand(rand.New(rand.NewPCG(r.Seed, uint64(2+i))), clients))
	}
	hands = append(hands, func(ctx context.Context) error {
		r.keepLooking(ctx, h)
		return nil
	})
	if err := r.backUp(ctx, n); err != nil {
		return err
	}
	for i := range bouts {
		if i > 0 {
			r.rest(ctx, h)
		}
		if i%restoreEvery == 1 {
			if err := r.restore(ctx, n, h); err != nil {
				return err
			}
		}
		if err := together(ctx, length, hands); err != nil {
			return err
		}
	}
	return nil
}

// rest injects no fault for a lull, and records what the servers show then.
func (r *run) rest(ctx context.Context, h *History) {
	for range looks {
		pause(ctx, lull/looks)
		r.look(ctx, h, false)
	}
}

// together runs all hands for a time, or until one fails, because without servers there is nothing to observe.
func together(ctx context.Context, length time.Duration, hands []func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	errs := make([]error, len(hands))
	var all sync.WaitGroup
	for i, work := range hands {
		all.Go(func() {
			if errs[i] = work(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
