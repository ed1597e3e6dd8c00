package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// term leads for a moment. It reports whether that was the last term, which starts after the finish was requested,
// and is not lost.
func (c *contender) term(ctx context.Context, term *recipes.Lease) (last bool) {
	last = c.finishing()
	c.tries++
	c.took(term)
	c.guard(ctx, term)
	c.work(term, 150*time.Millisecond)
	c.guard(ctx, term)
	return last && term.Context().Err() == nil
}

// latch leads again and again.
func (c *contender) latch(ctx context.Context) error {
	done := make(chan struct{})
	led := sync.OnceFunc(func() { close(done) })
	l, err := latch.New(c.client, c.path, latch.WithID(c.name), latch.WithListener(latch.Listener{
		IsLeader: func(term *recipes.Lease) {
			if c.term(ctx, term) {
				led()
			}
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
	done := make(chan struct{})
	led := sync.OnceFunc(func() { close(done) })
	s, err := selector.New(c.client, c.path, func(_ context.Context, term *recipes.Lease) error {
		if c.term(ctx, term) {
			led()
		}
		c.note(Event{What: Releasing, Try: c.tries, Token: term.FencingToken()})
		return nil
	}, selector.WithID(c.name), selector.WithAutoRequeue(),
		selector.WithRequeueBackoff(recipes.RetryPolicy{InitialInterval: time.Millisecond})) // terms are short here
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
