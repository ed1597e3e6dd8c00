package cli

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// election is a locker that is acquired for one term after another.
type election interface {
	locker
	// leave ends a term after its command.
	leave(term *recipes.Lease)
}

// newElection returns the election at a path, as the recipe by which others take part there.
func newElection(ctx context.Context, c *recipes.Client, path, id string, isLatch bool, options ...latch.Option) (election, error) {
	queue, err := inspect.Peek(ctx, c, path, 0)
	if err != nil && !isMissing(err) {
		return nil, err
	}
	isUsed := err == nil && len(queue.Contenders) > 0
	switch {
	case isUsed && queue.Kind == inspect.KindLatch, !isUsed && isLatch:
		return newLatchElection(c, path, id, options...)
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

// latchElection acquires terms of a LeaderLatch. A single latch takes part until the client is closed, so that zkr is no
// newcomer after a term, and its priority and a transfer have their usual effect. The command runs in the latch's listener, so
// that a latch that steps down deletes its znode after the command.
type latchElection struct {
	latch *latch.LeaderLatch
	terms chan *recipes.Lease // each term that begins, taken by Acquire
	left  chan struct{}       // a message per term, after its command
}

func newLatchElection(c *recipes.Client, path, id string, options ...latch.Option) (*latchElection, error) {
	e := &latchElection{terms: make(chan *recipes.Lease), left: make(chan struct{})}
	options = append(options, latch.WithListener(latch.Listener{IsLeader: e.serve}))
	if id != "" {
		options = append(options, latch.WithID(id))
	}
	var err error
	e.latch, err = latch.New(c, path, options...)
	return e, err
}

// serve hands a term to Acquire, and returns after the term's command.
func (e *latchElection) serve(term *recipes.Lease) {
	select {
	case e.terms <- term:
		<-e.left
	case <-term.Context().Done():
	}
}

func (e *latchElection) leave(*recipes.Lease) { e.left <- struct{}{} }

// start enters the election unless the latch takes part already.
func (e *latchElection) start() error {
	if err := e.latch.Start(); !errors.Is(err, recipes.ErrAlreadyStarted) {
		return err
	}
	return nil
}

// Acquire waits for the next term. The latch itself tries again after a refusal.
func (e *latchElection) Acquire(ctx context.Context) (*recipes.Lease, error) {
	if err := e.start(); err != nil { //nolint:contextcheck // an election ends with its client
		return nil, err
	}
	for {
		leading, err := e.latch.Await(ctx)
		if err != nil {
			return nil, err
		}
		select {
		case term := <-e.terms:
			return term, nil
		case <-leading.Context().Done(): // before it was served
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TryAcquire takes part for one decision.
func (e *latchElection) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	if err := e.start(); err != nil { //nolint:contextcheck // an election ends with its client
		return nil, err
	}
	select {
	case <-e.latch.Decided():
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), e.latch.Err())
	}
	if !e.latch.HasLeadership() {
		return nil, recipes.ErrNotAcquired
	}
	return e.Acquire(ctx)
}
