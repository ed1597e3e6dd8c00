package chaos

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

// again acquires and releases a lock until the process is to finish, and then once more. each is given each lease, and pause says how long
// to stay away behind it.
func (c *contender) again(ctx context.Context, client *recipes.Client, pause func() time.Duration, each func(*recipes.Lease)) error {
	m, err := mutex.New(client, c.path, mutex.WithID(c.name))
	if err != nil {
		return err
	}
	for last := false; !last && ctx.Err() == nil; linger(pause(), ctx.Done()) {
		last = c.finishing()
		c.call(unlimited, 0)
		lease := c.acquire(ctx, m.Acquire)
		if lease == nil {
			last = false
			continue
		}
		each(lease)
		c.release(lease)
	}
	return ctx.Err()
}

// fenced holds the lock, mostly for a moment, and writes behind it.
func (c *contender) fenced(ctx context.Context) error {
	pause := func() time.Duration { return c.upTo(30 * time.Millisecond) }
	return c.again(ctx, c.client, pause, func(lease *recipes.Lease) {
		c.guard(ctx, lease)
		c.work(lease, time.Millisecond)
		c.guard(ctx, lease) // lost or not, the row decides
		if lease.Context().Err() != nil || c.rand.IntN(3) == 0 {
			c.mark(lease) // and so do the servers
		}
	})
}

// inBursts holds the lock many times in a row, and then leaves it to others.
func (c *contender) inBursts(ctx context.Context) error {
	const longest = 30
	left := 0 // of the burst
	pause := func() time.Duration {
		if left > 0 {
			left--
			return 0
		}
		left = c.rand.IntN(longest)
		return c.upTo(2 * time.Second)
	}
	return c.again(ctx, c.client, pause, func(lease *recipes.Lease) {
		c.guard(ctx, lease)
		c.work(lease, time.Millisecond)
	})
}

// work takes up to a time, or now and then long enough for a fault. Some workers are slow to notice the loss of the
// lock, and still write.
func (c *contender) work(lease *recipes.Lease, upTo time.Duration) {
	if c.rand.IntN(12) == 0 && !c.finishing() {
		upTo = 2 * c.Timeout
	}
	linger(c.upTo(upTo), lease.Context().Done())
	if lease.Context().Err() != nil && c.rand.IntN(2) == 0 {
		linger(c.upTo(c.Timeout), nil)
	}
}

// guard changes the guarded row, like a holder that may not know of its loss.
func (c *contender) guard(ctx context.Context, lease *recipes.Lease) {
	token := lease.FencingToken()
	c.note(Event{What: Claiming, Try: c.tries, Token: token})
	if !c.answered(Claimed, token, 0, c.row.claim(ctx, token)) {
		return
	}
	value, err := c.row.read(ctx)
	if err != nil {
		return // nothing was changed
	}
	c.note(Event{What: Writing, Try: c.tries, Token: token, Value: value + 1})
	c.answered(Wrote, token, value+1, c.row.write(ctx, token, value+1))
}

// answered records what the row said.
func (c *contender) answered(well What, token, value int64, err error) bool {
	e := Event{What: well, Try: c.tries, Token: token, Value: value}
	switch {
	case errors.Is(err, errStale):
		e.What = Refused
	case err != nil:
		e.What, e.Text = Unsure, err.Error()
	}
	c.note(e)
	return err == nil
}

// mark writes the guarded znode, if the lease's own is there.
func (c *contender) mark(lease *recipes.Lease) {
	token := lease.FencingToken()
	answers, err := c.client.Conn().Multi(lease.Check(),
		&zk.SetDataRequest{Path: registerPath, Data: []byte(strconv.FormatInt(token, 10)), Version: -1})
	switch {
	case err == nil:
		c.note(Event{What: Marked, Try: c.tries, Token: token, Zxid: answers[1].Stat.Mzxid})
	case errors.Is(err, zk.ErrNoNode):
		c.note(Event{What: Unmarked, Try: c.tries, Token: token})
	default: // the outcome is unknown
	}
}

// mixed acquires in every way there is, and gives up in every way.
func (c *contender) mixed(ctx context.Context) error {
	m, err := mutex.New(c.client, c.path, mutex.WithID(c.name))
	if err != nil {
		return err
	}
	for !c.finishing() && ctx.Err() == nil {
		switch c.rand.IntN(5) {
		case 0:
			c.call(byTry, 0)
			if lease := c.acquire(ctx, m.TryAcquire); lease != nil {
				c.release(lease)
			}
		case 1:
			_, _ = m.Participants(ctx)
		default:
			c.impatient(ctx, m)
		}
		linger(c.upTo(40*time.Millisecond), ctx.Done())
	}
	for ctx.Err() == nil {
		c.call(unlimited, 0)
		if lease := c.acquire(ctx, m.Acquire); lease != nil {
			c.nest(m, lease)
			return nil
		}
	}
	return ctx.Err()
}

// impatient waits for no longer than it likes.
func (c *contender) impatient(ctx context.Context, m *mutex.InterProcessMutex) {
	patience, limits := c.upTo(c.Timeout/4), []string{byDeadline, byCancel}
	ctx, cancel := c.callLimited(ctx, limits[c.rand.IntN(len(limits))], patience)
	defer cancel()
	if lease := c.acquire(ctx, m.Acquire); lease != nil {
		c.nest(m, lease)
	}
}

// callLimited is call for an attempt with a time limit or a cancellation, and returns the context for it.
func (c *contender) callLimited(ctx context.Context, limit string, patience time.Duration) (context.Context, context.CancelFunc) {
	c.call(limit, patience)
	if limit == byDeadline {
		return context.WithTimeout(ctx, patience)
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(patience, cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

// nest re-enters a lock, and releases everything in some order.
func (c *contender) nest(m *mutex.InterProcessMutex, outer *recipes.Lease) {
	token := outer.FencingToken()
	inner, err := m.Acquire(outer.Context())
	if err != nil {
		if outer.Context().Err() == nil { // the hold is still valid
			c.note(Event{What: Unnested, Try: c.tries, Token: token, Text: err.Error()})
		}
		c.release(outer)
		return
	}
	c.note(Event{What: Reacquired, Try: c.tries, Token: inner.FencingToken()})
	c.observe(inner)
	linger(c.upTo(15*time.Millisecond), inner.Context().Done())
	c.guard(context.WithoutCancel(inner.Context()), inner)
	c.note(Event{What: Rereleased, Try: c.tries, Token: token})
	if c.rand.IntN(2) == 0 {
		_ = inner.Release() // fails with the loss that the outer release returns
		c.release(outer)
		return
	}
	if outer.Release() == nil { // the znode stays for the inner one
		c.guard(context.WithoutCancel(inner.Context()), inner)
	}
	c.release(inner)
}

// revoked holds the lock until a revocation, and sends one.
func (c *contender) revoked(ctx context.Context) error {
	m, err := mutex.New(c.client, c.path, mutex.WithID(c.name))
	if err != nil {
		return err
	}
	revoker := revoke.New(c.client)
	storm, calm := context.WithCancel(ctx)
	pause := c.upTo(100*time.Millisecond) + 20*time.Millisecond
	stormed := make(chan struct{})
	go func() { // ends with storm; joined below
		defer close(stormed)
		for ; storm.Err() == nil; linger(pause, storm.Done()) {
			if queue, err := m.Participants(storm); err == nil && len(queue) > 0 {
				_ = revoker.AttemptRevoke(storm, queue[0].Path) // on failure, the holder continues
			}
		}
	}()
	defer func() {
		calm()
		<-stormed
	}()
	for last := false; !last && ctx.Err() == nil; linger(c.upTo(20*time.Millisecond), ctx.Done()) {
		last = c.finishing()
		c.call(unlimited, 0)
		lease := c.acquire(ctx, m.Acquire)
		if lease == nil {
			last = false
			continue
		}
		c.guard(ctx, lease)
		select {
		case <-lease.Revoked():
			c.note(Event{What: Asked, Try: c.tries, Token: lease.FencingToken()})
		case <-lease.Context().Done():
		case <-time.After(time.Second):
		}
		c.release(lease)
	}
	return ctx.Err()
}
