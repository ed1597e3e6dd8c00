package peer

import (
	"context"
	"errors"
	"slices"
)

// Baskets locks several paths together, for sessions with a multilock.
type Baskets interface {
	// Basket returns a contender for all paths, which are sorted.
	Basket(ctx context.Context, paths []string) (Contender, error)
}

// NewBasket returns a contender for all paths, which are sorted. A session without Baskets locks the paths one after the other in
// this order, and unlocks them in reverse.
func NewBasket(ctx context.Context, s Session, paths []string) (Contender, error) {
	if b, ok := s.(Baskets); ok {
		return b.Basket(ctx, paths)
	}
	parts := make(oneByOne, len(paths))
	for i, path := range paths {
		var err error
		if parts[i], err = s.Contender(ctx, path); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// oneByOne locks its parts in order. If a part fails, it unlocks the parts before.
type oneByOne []Contender

func (c oneByOne) Lock(ctx context.Context) error {
	for i, part := range c {
		if err := part.Lock(ctx); err != nil {
			return errors.Join(err, c[:i].Unlock())
		}
	}
	return nil
}

func (c oneByOne) Unlock() error {
	var errs []error
	for _, part := range slices.Backward(c) {
		errs = append(errs, part.Unlock())
	}
	return errors.Join(errs...)
}

// openOneByOne opens a session of this library whose multilock is hidden, so that NewBasket locks its mutexes one after the other.
func openOneByOne(ctx context.Context, address string) (Session, error) {
	s, err := openOurs()(ctx, address)
	return struct{ Session }{s}, err
}
