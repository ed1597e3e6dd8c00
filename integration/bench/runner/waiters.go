package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/meter"
)

// waitersKind forms a long queue, measures what a waiter costs, and gives up.
type waitersKind struct{}

func (waitersKind) ownSessions() bool { return true }
func (waitersKind) isCounted() bool   { return false }

func (waitersKind) run(ctx context.Context, s Stage) ([]Value, error) {
	if err := s.crew.Open(s.server.Addr(), s.Sessions); err != nil {
		return nil, err
	}
	before, err := s.crew.Memory()
	if err != nil {
		return nil, err
	}
	q, err := formQueue(ctx, s, s.server.Watches)
	if err != nil {
		return nil, err
	}
	after, err := s.crew.Memory()
	if err != nil {
		return nil, err
	}
	if err := q.abandon(s); err != nil {
		return nil, err
	}
	each := func(m Metric, before, after int64) Value {
		return Value{m, float64(after-before) / float64(s.Load.Contenders)}
	}
	return []Value{
		milliseconds(metricWaiting, q.took),
		each(metricMemory, before.Heap+before.Stacks, after.Heap+after.Stacks),
		each(metricRSS, before.Resident, after.Resident),
		each(metricThreads, before.Threads, after.Threads),
	}, nil
}

// abandon closes the sessions, at which all waiters fail.
func (q *formed) abandon(s Stage) error {
	if err := s.crew.CloseSessions(); err != nil {
		return err
	}
	if _, err := q.run.Wait(); err == nil {
		return fmt.Errorf("runner: %s: %s: waiters of a closed session got the lock", s.Name, s.crew.Name)
	}
	return nil
}

// stormKind cuts the connections of all waiters at once, and measures until each waits again.
type stormKind struct{}

// stormLimit is how long the waiters may take to wait again.
const stormLimit = 2 * time.Minute

func (stormKind) ownSessions() bool { return true }
func (stormKind) isCounted() bool   { return false }

func (stormKind) run(ctx context.Context, s Stage) (values []Value, err error) {
	m, err := meter.Start(s.server.Addr())
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := s.crew.Open(m.Addr(), s.Sessions); err != nil {
		return nil, err
	}
	q, err := formQueue(ctx, s, s.server.Watches)
	if err != nil {
		return nil, err
	}
	watches, err := s.server.Watches(ctx)
	if err != nil {
		return nil, err
	}
	m.Reset()
	cutAt := time.Now()
	m.Cut()
	if err := awaitWatches(ctx, s, m, watches); err != nil {
		return nil, err
	}
	took, counts := time.Since(cutAt), m.Counts()
	if n, err := queued(ctx, s); err != nil || n != s.Load.Contenders+s.Load.Locks {
		return nil, fmt.Errorf("runner: %s: %s: %d contenders after the storm: %w", s.Name, s.crew.Name, n, errors.Join(err))
	}
	if err := q.abandon(s); err != nil {
		return nil, err
	}
	return []Value{
		milliseconds(metricAgain, took),
		{metricAsked, float64(counts.Total()) / float64(s.Load.Contenders)},
		{metricDown, float64(counts.BytesDown) / 1024},
	}, nil
}

// awaitWatches waits until the watches of the lost connections are gone, and as many are set again.
func awaitWatches(ctx context.Context, s Stage, m *meter.Meter, want int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stormLimit, errors.New("not all wait again"))
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for gone := false; ; {
		watches, err := s.server.Watches(ctx)
		if err != nil {
			return err
		}
		// A fast client has its watches back between two looks. Nothing but a new connection sends requests here.
		gone = gone || watches < want || m.Counts().Total() > 0
		if gone && watches >= want {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("runner: %s: %s: %d of %d watches: %w", s.Name, s.crew.Name, watches, want, context.Cause(ctx))
		}
	}
}
