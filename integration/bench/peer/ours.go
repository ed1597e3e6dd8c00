package peer

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
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
	return &ourContender{mutex: m}, nil
}

type ourContender struct {
	mutex *mutex.InterProcessMutex
	lease *recipes.Lease
}

func (c *ourContender) Lock(ctx context.Context) (err error) {
	c.lease, err = c.mutex.Acquire(ctx)
	return err
}

func (c *ourContender) Unlock() error { return c.lease.Release() }

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
