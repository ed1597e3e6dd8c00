package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// term leads for a moment.
func (c *contender) term(ctx context.Context, term *recipes.Lease) {
	c.tries++
	c.took(term)
	c.guard(ctx, term)
	linger(c.upTo(150*time.Millisecond), term.Context().Done())
	c.guard(ctx, term)
}

// latch leads again and again.
func (c *contender) latch(ctx context.Context) error {
	done, led := c.lastTerm()
	l, err := latch.New(c.client, c.path, latch.WithID(c.name), latch.WithListener(latch.Listener{
		IsLeader: func(term *recipes.Lease) {
			c.term(ctx, term)
			led()
			c.release(term)
		},
	}))
	if err != nil {
		return err
	}
	if err := l.Start(); err != nil {
		return err
	}
	c.watch(ctx, done, l.Leadership)
	return l.Close()
}

// selector leads again and again.
func (c *contender) selector(ctx context.Context) error {
	done, led := c.lastTerm()
	s, err := selector.New(c.client, c.path, func(_ context.Context, term *recipes.Lease) error {
		c.term(ctx, term)
		led()
		return nil
	}, selector.WithID(c.name), selector.WithAutoRequeue())
	if err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	return s.Close()
}

// lastTerm returns a channel that is closed once a term has ended that is said to have
// been led after the finish was asked for.
func (c *contender) lastTerm() (done <-chan struct{}, led func()) {
	last := make(chan struct{})
	closing := sync.OnceFunc(func() { close(last) })
	return last, func() {
		if c.finishing() {
			closing()
		}
	}
}

// watch asks now and then who leads, until done.
func (c *contender) watch(ctx context.Context, done <-chan struct{}, leadership func() (*recipes.Lease, bool)) {
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
			asked := Now()
			if term, ok := leadership(); ok {
				c.note(Event{What: Led, Token: term.FencingToken(), Value: asked})
			}
		}
	}
}
