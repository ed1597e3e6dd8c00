package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/meter"
	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
)

// waitersKind forms a long queue, measures the cost of a waiter, and gives up. The memory of Go peers is measured in a fresh
// process, because stacks and heap of ended goroutines would be reused and hide the memory of new waiters. A JVM unmaps the
// stacks of its threads, and loads its classes in the first run, so the warm process is measured.
type waitersKind struct{}

func (waitersKind) ownSessions() bool { return true }
func (waitersKind) isCounted() bool   { return false }

func (waitersKind) run(ctx context.Context, s Stage) ([]Value, error) {
	values, err := waiting(ctx, s)
	if err != nil || s.crew.Name == peer.Curator {
		return values, err
	}
	fresh := s
	if fresh.crew, err = s.crew.StartAgain(); err != nil {
		return nil, err
	}
	fresh.Load.Path += "-memory"
	ofFresh, err := waiting(ctx, fresh)
	if err = errors.Join(err, fresh.crew.Close()); err != nil {
		return nil, err
	}
	return append(values[:1], ofFresh[1:]...), nil // the time is that of the warm process
}

// waiting measures the time and the memory in the processes of a stage.
func waiting(ctx context.Context, s Stage) ([]Value, error) {
	if err := s.crew.Open(s.server.Addr(), s.Sessions); err != nil {
		return nil, err
	}
	before, err := s.crew.Memory()
	if err != nil {
		return nil, err
	}
	q, err := formQueue(ctx, s, watching(s))
	if err != nil {
		return nil, err
	}
	after, err := s.crew.Memory()
	if err != nil {
		return nil, err
	}
	if err := q.abandon(ctx, s); err != nil {
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

// abandon closes the sessions, so that all waiters fail. None may fail before.
func (q *formed) abandon(ctx context.Context, s Stage) error {
	if err := allQueued(ctx, s); err != nil {
		return err
	}
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
	q, err := formQueue(ctx, s, watching(s))
	if err != nil {
		return nil, err
	}
	watches, err := s.server.Watches(ctx)
	if err != nil {
		return nil, err
	}
	m.Reset()
	cutAt := s.crew.Now()
	m.Cut()
	again, err := awaitWatches(ctx, s, m, watches)
	if err != nil {
		return nil, err
	}
	counts := m.Counts()
	if err := q.abandon(ctx, s); err != nil {
		return nil, err
	}
	return []Value{
		milliseconds(metricAgain, time.Duration(again-cutAt)),
		{metricAsked, float64(counts.Total()) / float64(s.Load.Contenders)},
		{metricDown, float64(counts.BytesDown) / 1024},
	}, nil
}

// awaitWatches waits until every session is connected again with as many watches as before, and sends no more requests. It
// returns the start of that state.
func awaitWatches(ctx context.Context, s Stage, m *meter.Meter, want int) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stormLimit, errors.New("not all wait again"))
	defer cancel()
	again, err := untilCalm(ctx, s.crew.Now, func(ctx context.Context) (bool, []int, error) {
		watches, err := s.server.Watches(ctx)
		c := m.Counts()
		return c.Handshakes >= s.Sessions && watches >= want, []int{watches, c.Total(), c.Answers}, err
	})
	if err != nil {
		return 0, fmt.Errorf("runner: %s: %s: %d watches before: %w", s.Name, s.crew.Name, want, err)
	}
	return again, nil
}
