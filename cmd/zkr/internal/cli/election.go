package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// election is a locker that is won again and again, and left in between.
type election interface {
	locker
	leave(term *recipes.Lease)
}

// newElection returns the election at a path, as the recipe by which others stand there.
func newElection(ctx context.Context, c *recipes.Client, path, id string, isLatch bool, options ...latch.Option) (election, error) {
	queue, err := inspect.Read(ctx, c, path)
	if err != nil && !isMissing(err) {
		return nil, err
	}
	isUsed := err == nil && len(queue.Contenders) > 0
	switch {
	case isUsed && queue.Kind == inspect.KindLatch, !isUsed && isLatch:
		return &latchElection{client: c, path: path, id: id, options: options}, nil
	case isUsed && (queue.Kind != inspect.KindMutex || isLatch):
		return nil, exit.Errorf(exit.Usage, "%s is used as a %s, not for an election of this kind", path, queue.Kind)
	}
	lock, err := newMutex(c, path, id)
	if err != nil {
		return nil, err
	}
	return selectorElection{lock}, nil
}

// selectorElection is a LeaderSelector's, which is a mutex on the wire.
type selectorElection struct{ locker }

func (selectorElection) leave(term *recipes.Lease) { _ = term.Release() } // after a loss there is nothing to release

// latchElection is a LeaderLatch's. Each term has a latch of its own, because a latch that steps down stands again at
// once.
type latchElection struct {
	client   *recipes.Client
	path, id string
	options  []latch.Option
	latch    *latch.LeaderLatch // of the present term
}

func (e *latchElection) start() (err error) {
	options := slices.Clone(e.options)
	if e.id != "" {
		options = append(options, latch.WithID(e.id))
	}
	if e.latch, err = latch.New(e.client, e.path, options...); err != nil {
		return err
	}
	return e.latch.Start()
}

// Acquire stands until it leads. The latch itself tries again after a refusal.
func (e *latchElection) Acquire(ctx context.Context) (*recipes.Lease, error) {
	if err := e.start(); err != nil { //nolint:contextcheck // an election ends with its own Close
		return nil, err
	}
	lease, err := e.latch.Await(ctx)
	if err != nil {
		e.leave(nil)
		return nil, err
	}
	return lease, nil
}

// TryAcquire stands for one decision.
func (e *latchElection) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	if err := e.start(); err != nil { //nolint:contextcheck // an election ends with its own Close
		return nil, err
	}
	select {
	case <-e.latch.Decided():
		if term, ok := e.latch.Leadership(); ok {
			return term, nil
		}
		e.leave(nil)
		return nil, recipes.ErrNotAcquired
	case <-ctx.Done():
		err := errors.Join(ctx.Err(), e.latch.Err())
		e.leave(nil)
		return nil, err
	}
}

func (e *latchElection) leave(*recipes.Lease) { _ = e.latch.Close() } // the end of the session removes the znode as well
