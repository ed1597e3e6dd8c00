package zkutil

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Candidate stands for leadership: for one term after the other, each a hold of a
// queue that keeps its znodes. It is what latch and selector have in common: a campaign
// that never gives up for lack of a server, and an end in the right order.
type Candidate struct {
	queue     *Queue
	quiet     chan struct{} // closed when the campaign runs no function of the user any more
	leftovers leftovers

	mu     sync.Mutex         // protects what is below
	ctx    context.Context    // of the campaign; ends with the session. Nil before Start
	stop   context.CancelFunc // ends ctx
	closed bool
}

// NewCandidate returns a candidate in a queue, which must keep its holds' znodes.
func NewCandidate(q *Queue) *Candidate {
	return &Candidate{queue: q, quiet: make(chan struct{})}
}

// Start runs the campaign in a goroutine of the session. It has to end soon after its
// context, but for the functions of the user that it waits for: the session lives, and
// with it the leader's znode, until they have returned.
func (c *Candidate) Start(campaign func(ctx context.Context)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case c.ctx != nil:
		return errors.New("already started")
	}
	ctx, stop := context.WithCancel(c.queue.Session.open)
	if !c.queue.Session.campaigns.run(func() {
		defer stop()
		campaign(ctx)
		close(c.quiet)
	}) {
		stop()
		return ErrClosed
	}
	c.ctx, c.stop = ctx, stop
	return nil
}

// Running returns ErrClosed after Stop or the end of the session, and an error before
// Start.
func (c *Candidate) Running() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed || c.queue.Session.open.Err() != nil:
		return ErrClosed
	case c.ctx == nil:
		return errors.New("not started")
	}
	return nil
}

// Stand waits for a term. It fails when ctx, which has to end with the session, does, or
// when the server refuses for good, as where an ACL forbids it.
func (c *Candidate) Stand(ctx context.Context) (*Entry, error) {
	s := c.queue.Session
	defer s.attended()()
	patient := context.WithValue(ctx, leftoversKey{}, &c.leftovers)
	again := func(err error) bool { return transient(err) || errors.Is(err, errPlaceLost) }
	term, err := retry(patient, s.cfg.Retry.patient(), again, func() (*Entry, error) { return c.queue.attempt(patient, true) })
	if errors.Is(err, ErrClosed) {
		<-ctx.Done() // at once, but not in the same instant: it must not look like a refusal
	}
	return term, err
}

// Vacate begins to delete the znode of a term that has ended. Until then nobody else
// can lead, unless the session is over.
func (c *Candidate) Vacate(term *Entry) { c.leftovers.add(term.vacate().done) }

// While derives a context that ends with the campaign's, too. It is for a candidate that
// was started.
func (c *Candidate) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Stop asks the campaign to end.
func (c *Candidate) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.stop != nil {
		c.stop()
	}
}

// Wait waits until a campaign that was stopped has ended: for the user's functions for
// at most grace, then for the last znode to go, which takes an operation timeout at
// most. The error says what still goes on. From inside a function of the user there is
// nothing to wait for.
func (c *Candidate) Wait(grace time.Duration) error {
	c.mu.Lock()
	started := c.ctx != nil
	c.mu.Unlock()
	if !started || InCallback() {
		return nil
	}
	if !within(c.quiet, grace) {
		return fmt.Errorf("step-down: the leader's function is still running after %v; its znode stays until it returns", grace)
	}
	return c.settle()
}

// settle waits until everything is gone that terms and ended attempts have left in
// ZooKeeper. The error says that it goes on.
func (c *Candidate) settle() error {
	s := c.queue.Session
	limit := time.NewTimer(s.cfg.OperationTimeout)
	defer limit.Stop()
	for _, done := range c.leftovers.all() {
		select {
		case <-done:
		case <-s.done:
			return nil // they go with the session
		case <-limit.C:
			return fmt.Errorf("znode not deleted after %v, deletion goes on: %w", s.cfg.OperationTimeout, s.unavailable())
		}
	}
	return nil
}
