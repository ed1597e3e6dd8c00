package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// limits are those of the semaphores, by path.
var limits = map[string]int{permitsPath: 3, secondPath: 1}

// The directories of a semaphore: one for the waiters for the turn, and one for the permits.
const turnsDir, takenDir = "/locks", "/leases"

// dirs are the directories of the contenders of all locks.
func dirs() (all []string) {
	for _, path := range paths {
		if limits[path] > 0 {
			all = append(all, path+turnsDir, path+takenDir)
		} else {
			all = append(all, path)
		}
	}
	return all
}

// underWriter is the text of a grant of the read lock under the write lock.
const underWriter = "under the write lock"

// seek makes one attempt, and reports whether it succeeded. The last attempt of a contender has no limit, nor do others now
// and then. The limits are a time, a cancellation, or a single try.
func (c *contender) seek(ctx context.Context, isLast bool, acquire, try func(context.Context) error) bool {
	err := c.attempt(ctx, isLast, acquire, try)
	if err != nil {
		c.note(Event{What: Failed, Try: c.tries, Text: err.Error()})
	}
	return err == nil
}

func (c *contender) attempt(ctx context.Context, isLast bool, acquire, try func(context.Context) error) error {
	limit, patience := []string{byTry, byDeadline, byCancel, unlimited, unlimited, unlimited}[c.rand.IntN(6)], c.upTo(c.Timeout/4)
	switch {
	case isLast || limit == unlimited:
		c.call(unlimited, 0)
		return acquire(ctx)
	case limit == byTry:
		c.call(byTry, 0)
		return try(ctx)
	}
	ctx, cancel := c.callLimited(ctx, limit, patience)
	defer cancel()
	return acquire(ctx)
}

// readWrite reads, and writes now and then, to the row as well.
func (c *contender) readWrite(ctx context.Context) error {
	l, err := rwlock.New(c.client, c.path, rwlock.WithID(c.name))
	if err != nil {
		return err
	}
	for last := false; !last && ctx.Err() == nil; linger(c.upTo(40*time.Millisecond), ctx.Done()) {
		last = c.finishing()
		lock, isWriter := l.ReadLock(), c.rand.IntN(3) == 0
		if isWriter {
			lock = l.WriteLock()
		}
		var lease *recipes.Lease
		if !c.seek(ctx, last,
			func(ctx context.Context) (err error) { lease, err = lock.Acquire(ctx); return err },
			func(ctx context.Context) (err error) { lease, err = lock.TryAcquire(ctx); return err },
		) {
			last = false
			continue
		}
		c.took(lease)
		if isWriter {
			c.write(ctx, l, lease)
			continue
		}
		c.work(lease, 20*time.Millisecond)
		c.release(lease)
	}
	return ctx.Err()
}

// write changes the row, and now and then continues as a reader.
func (c *contender) write(ctx context.Context, l *rwlock.InterProcessReadWriteLock, writer *recipes.Lease) {
	c.guard(ctx, writer)
	c.work(writer, 5*time.Millisecond)
	c.guard(ctx, writer)
	try := c.tries
	if c.rand.IntN(3) > 0 {
		c.release(writer)
		return
	}
	reader, err := l.ReadLock().Acquire(writer.Context())
	if err != nil {
		if writer.Context().Err() == nil && !errors.Is(err, recipes.ErrNodeDeleted) {
			c.note(Event{What: Unnested, Try: try, Token: writer.FencingToken(), Text: err.Error()})
		}
		c.release(writer)
		return
	}
	c.tries++
	c.note(Event{What: Granted, Try: c.tries, Token: reader.FencingToken(), Znode: reader.Path(), Text: underWriter})
	c.observe(reader)
	c.releaseTry(writer, try)
	c.work(reader, 20*time.Millisecond)
	c.release(reader)
}

// permits takes some or all permits, and releases them one by one.
func (c *contender) permits(ctx context.Context) error {
	limit := limits[c.path]
	s, err := semaphore.New(c.client, c.path, limit, semaphore.WithID(c.name))
	if err != nil {
		return err
	}
	for last := false; !last && ctx.Err() == nil; linger(c.upTo(20*time.Millisecond), ctx.Done()) {
		last = c.finishing()
		n := 1 + c.rand.IntN(limit)
		var leases []*recipes.Lease
		if !c.seek(ctx, last,
			func(ctx context.Context) (err error) { leases, err = s.AcquireN(ctx, n); return err },
			func(ctx context.Context) (err error) { leases, err = s.TryAcquireN(ctx, n); return err },
		) {
			last = false
			continue
		}
		first := c.tries
		c.took(leases[0])
		for _, lease := range leases[1:] {
			c.tries++
			c.took(lease)
		}
		for i, lease := range leases {
			c.work(lease, 10*time.Millisecond)
			c.releaseTry(lease, first+i)
		}
	}
	return ctx.Err()
}

// part records when one of several locks is acquired, which may be long before all are.
type part struct {
	multilock.Locker
	*contender
}

func (p part) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return p.heard(p.Locker.Acquire(ctx))
}

func (p part) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return p.heard(p.Locker.TryAcquire(ctx))
}

func (p part) heard(lease *recipes.Lease, err error) (*recipes.Lease, error) {
	if err == nil {
		p.note(Event{What: Part, Token: lease.FencingToken(), Znode: lease.Path()})
	}
	return lease, err
}

// both holds two locks as one: a mutex, and a semaphore mutex.
func (c *contender) both(ctx context.Context) error {
	first, err := mutex.New(c.client, firstPath, mutex.WithID(c.name))
	if err != nil {
		return err
	}
	second, err := semaphore.NewMutex(c.client, secondPath, semaphore.WithID(c.name))
	if err != nil {
		return err
	}
	other := *c
	other.name, other.path = c.name+"+", secondPath
	m, err := multilock.New(part{first, c}, part{second, &other})
	if err != nil {
		return err
	}
	for last := false; !last && ctx.Err() == nil; linger(c.upTo(30*time.Millisecond), ctx.Done()) {
		last = c.finishing()
		var lease *multilock.Lease
		err := c.attempt(ctx, last,
			func(ctx context.Context) (err error) { lease, err = m.Acquire(ctx); return err },
			func(ctx context.Context) (err error) { lease, err = m.TryAcquire(ctx); return err },
		)
		if err != nil {
			if !errors.Is(err, recipes.ErrSessionLost) && !errors.Is(err, recipes.ErrNodeDeleted) { // else the first was lost
				c.note(Event{What: Failed, Try: c.tries, Text: err.Error()})
			}
			last = false
			continue
		}
		other.tries = c.tries
		parts := lease.Leases()
		c.took(parts[0])
		other.took(parts[1])
		c.work(parts[1], 5*time.Millisecond)
		releaseTogether([]*contender{c, &other}, lease)
	}
	return ctx.Err()
}

// releaseTogether gives the locks of several holders back. Release returns the error of any.
func releaseTogether(holders []*contender, lease *multilock.Lease) {
	parts := lease.Leases()
	for i, holder := range holders {
		holder.note(Event{What: Releasing, Try: holder.tries, Token: parts[i].FencingToken()})
	}
	text := ""
	if err := lease.Release(); err != nil {
		text = err.Error()
	}
	for i, holder := range holders {
		holder.note(Event{What: Released, Try: holder.tries, Token: parts[i].FencingToken(), Text: text})
		if parts[i].Context().Err() == nil {
			holder.note(Event{What: Standing, Try: holder.tries, Token: parts[i].FencingToken()})
		}
	}
}
