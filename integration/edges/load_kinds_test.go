package edges_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// worker does one kind of thing over and over.
type worker struct {
	many   int
	pause  time.Duration // between two operations, on average
	counts string        // the name of what is counted
	work   func(random *rand.Rand) error
}

// opTimeout bounds an operation that has to succeed unless it meets a fault.
const opTimeout = 10 * time.Second

func (l *load) kinds() map[string]worker {
	return map[string]worker{
		"contend":  {8, 20 * time.Millisecond, "contended", l.contend},
		"attempt":  {4, 5 * time.Millisecond, "timed out", l.attempt},
		"try":      {2, 10 * time.Millisecond, "tried", l.try},
		"elect":    {3, 50 * time.Millisecond, "led", l.elect},
		"select":   {2, 50 * time.Millisecond, "took leadership", l.selectLeader},
		"observe":  {2, 50 * time.Millisecond, "observed", l.observe},
		"revoke":   {1, 100 * time.Millisecond, "revoked", l.revoke},
		"come, go": {1, 300 * time.Millisecond, "connected", l.comeAndGo},
		"cut":      {1, 2 * time.Second, "cut", l.cut},
		"expire":   {1, 5 * time.Second, "expired", l.expire},
	}
}

func (l *load) client(random *rand.Rand) *recipes.Client {
	return l.clients[random.IntN(len(l.clients))]
}

// contend acquires one of four locks, enters once more, and releases.
func (l *load) contend(random *rand.Rand) error {
	m, err := mutex.New(l.client(random), fmt.Sprintf("%s/lock-%d", l.root, random.IntN(4)), mutex.WithRevocationListener(func(*recipes.Lease) {}))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.ctx, opTimeout)
	defer cancel()
	return m.Do(ctx, func(ctx context.Context, _ *recipes.Lease) error {
		inner, err := m.Acquire(ctx)
		if err != nil {
			return err
		}
		return inner.Release()
	})
}

// attempt gives up behind the holder.
func (l *load) attempt(random *rand.Rand) error {
	m, err := mutex.New(l.client(random), l.root+"/held")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.ctx, time.Duration(5+random.IntN(50))*time.Millisecond)
	defer cancel()
	if _, err := m.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("behind the holder: %w", err)
	}
	return nil
}

// try finds the lock held.
func (l *load) try(random *rand.Rand) error {
	m, err := mutex.New(l.client(random), l.root+"/held")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.ctx, opTimeout)
	defer cancel()
	if _, err = m.TryAcquire(ctx); errors.Is(err, recipes.ErrNotAcquired) {
		return nil
	}
	return err
}

// elect stands for a term, steps down in one of two ways, and leaves.
func (l *load) elect(random *rand.Rand) error {
	election, err := latch.New(l.client(random), l.root+"/latch", latch.WithListener(latch.Listener{IsLeader: func(*recipes.Lease) {}}))
	if err != nil {
		return err
	}
	if err := election.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.ctx, opTimeout)
	defer cancel()
	term, err := election.Await(ctx)
	if err == nil && random.IntN(2) == 0 {
		err = term.Release()
	}
	return errors.Join(err, election.Close())
}

// selectLeader leads for a moment, twice.
func (l *load) selectLeader(random *rand.Rand) error {
	ctx, cancel := context.WithTimeout(l.ctx, opTimeout)
	defer cancel()
	terms := 0
	s, err := selector.New(l.client(random), l.root+"/selector", func(context.Context, *recipes.Lease) error {
		if terms++; terms == 2 {
			cancel()
		}
		return nil
	}, selector.WithAutoRequeue())
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// observe looks at an election and its participants.
func (l *load) observe(random *rand.Rand) error {
	election, err := latch.New(l.client(random), l.root+"/latch")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.ctx, opTimeout)
	defer cancel()
	leaders := election.Observe(ctx)
	<-leaders
	_, err = election.Participants(ctx)
	cancel()
	for range leaders { // until it is closed
	}
	return err
}

// revoke asks the holder of a lock to release.
func (l *load) revoke(random *rand.Rand) error {
	client := l.client(random)
	m, err := mutex.New(client, fmt.Sprintf("%s/lock-%d", l.root, random.IntN(4)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.ctx, opTimeout)
	defer cancel()
	queue, err := m.Participants(ctx)
	if err != nil || len(queue) == 0 {
		return err
	}
	return revoke.New(client).AttemptRevoke(ctx, queue[0].Path)
}

// comeAndGo is a client for one acquisition, closed while it holds.
func (l *load) comeAndGo(random *rand.Rand) error {
	ctx, cancel := context.WithTimeout(l.ctx, opTimeout)
	defer cancel()
	client, err := recipes.Connect(ctx, []string{l.proxy.Addr()}, recipes.WithSessionTimeout(sessionTimeout))
	if err != nil {
		return err
	}
	_, stop := client.Subscribe()
	defer stop()
	m, err := mutex.New(client, fmt.Sprintf("%s/lock-%d", l.root, random.IntN(4)))
	if err == nil {
		_, err = m.Acquire(ctx)
	}
	return errors.Join(err, client.Close())
}

// cut ends every connection.
func (l *load) cut(*rand.Rand) error {
	l.proxy.Cut()
	return nil
}

// expire ends the session of one client.
func (l *load) expire(random *rand.Rand) error {
	id := l.client(random).Conn().SessionID()
	if id == 0 {
		return nil // not connected yet
	}
	err := zkadmin.Expire(l.ctx, l.server, id)
	if errors.Is(err, zkadmin.ErrNoSession) || errors.Is(err, zk.ErrSessionExpired) {
		return nil
	}
	return err
}
