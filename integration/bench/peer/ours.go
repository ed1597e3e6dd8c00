package peer

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// ourSession is a session of this library, whose mutexes have some options.
type ourSession struct {
	client  *recipes.Client
	options []mutex.Option
}

func openOurs(options ...mutex.Option) func(ctx context.Context, address string) (Session, error) {
	return func(ctx context.Context, address string) (Session, error) {
		log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})) // not each session
		client, err := recipes.Connect(ctx, []string{address}, recipes.WithSessionTimeout(SessionTimeout), recipes.WithLogger(log))
		if err != nil {
			return nil, err
		}
		return ourSession{client, options}, nil
	}
}

func (s ourSession) Close() error { return s.client.Close() }

func (s ourSession) Contender(_ context.Context, path string) (Contender, error) {
	m, err := mutex.New(s.client, path, s.options...)
	if err != nil {
		return nil, err
	}
	return &ourContender[*recipes.Lease]{acquire: m.Acquire}, nil
}

func (s ourSession) Basket(_ context.Context, paths []string) (Contender, error) {
	m, err := multilock.NewMutexes(s.client, paths, s.options...)
	if err != nil {
		return nil, err
	}
	return &ourContender[*multilock.Lease]{acquire: m.Acquire}, nil
}

// ourContender is a mutex or a multilock.
type ourContender[L interface{ Release() error }] struct {
	acquire func(ctx context.Context) (L, error)
	lease   L
}

func (c *ourContender[L]) Lock(ctx context.Context) (err error) {
	c.lease, err = c.acquire(ctx)
	return err
}

func (c *ourContender[L]) Unlock() error { return c.lease.Release() }

// ourCandidate is a latch.
type ourCandidate struct {
	latch   *latch.LeaderLatch
	elected chan struct{}
	at      atomic.Pointer[time.Time]
}

func (s ourSession) Candidate(_ context.Context, path string) (Candidate, error) {
	c := &ourCandidate{elected: make(chan struct{})}
	l, err := latch.New(s.client, path, latch.WithListener(latch.Listener{IsLeader: func(*recipes.Lease) {
		now := time.Now()
		if c.at.CompareAndSwap(nil, &now) {
			close(c.elected)
		}
	}}))
	if err != nil {
		return nil, err
	}
	c.latch = l
	return c, l.Start()
}

func (c *ourCandidate) Elected() <-chan struct{} { return c.elected }
func (c *ourCandidate) ElectedAt() time.Time     { return *c.at.Load() }
func (c *ourCandidate) Resign() error            { return c.latch.Close() }
