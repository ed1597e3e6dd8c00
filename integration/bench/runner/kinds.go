package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
)

// loopKind has contenders lock and unlock.
type loopKind struct{}

func (loopKind) ownSessions() bool { return false }
func (loopKind) isCounted() bool   { return true }

func (loopKind) run(_ context.Context, s Stage) ([]Value, error) {
	spans, err := s.crew.Loop(s.Load)
	if err != nil {
		return nil, err
	}
	if err := checkExclusion(s, spans); err != nil {
		return nil, err
	}
	wall := load.Wall(spans)
	rate := Value{metricRate, float64(len(spans)) / wall.Seconds()}
	pairs := load.Pairs(spans)
	switch {
	case s.Load.Pairs == 0:
		return []Value{milliseconds(metricWall, wall), rate}, nil
	case s.Load.Contenders == 1:
		return []Value{microseconds(metricPair, load.Quantile(pairs, 0.5)), microseconds(metricPair99, load.Quantile(pairs, 0.99)), rate}, nil
	case s.Load.Basket > 0:
		waits := load.Waits(spans)
		return []Value{rate, milliseconds(metricWait, load.Quantile(waits, 0.5)), milliseconds(metricLongest, load.Quantile(waits, 1))}, nil
	case s.Load.Locks > 1:
		return []Value{rate, microseconds(metricPair, load.Quantile(pairs, 0.5))}, nil
	}
	handoffs := load.Handoffs(spans)
	return []Value{
		rate, microseconds(metricHandoff, load.Quantile(handoffs, 0.5)), microseconds(metricLate, load.Quantile(handoffs, 0.99)),
	}, nil
}

func checkExclusion(s Stage, spans []load.Span) error {
	if s.Load.Locks > 1 && s.Load.Basket == 0 || !excludes(s.crew.Name) {
		return nil
	}
	if n := load.Overlaps(spans); n > 0 {
		return fmt.Errorf("runner: %s: %s: %d acquisitions while another one held the lock", s.Name, s.crew.Name, n)
	}
	return nil
}

// drainKind forms a queue behind a holder and lets it run empty.
type drainKind struct{}

func (drainKind) ownSessions() bool { return false }
func (drainKind) isCounted() bool   { return true }

func (drainKind) run(ctx context.Context, s Stage) ([]Value, error) {
	q, err := formQueue(ctx, s, watching(s))
	if err != nil {
		return nil, err
	}
	spans, err := q.drain()
	if err != nil {
		return nil, err
	}
	if err := checkExclusion(s, spans); err != nil {
		return nil, err
	}
	handoffs := load.Handoffs(spans)
	return []Value{microseconds(metricHandoff, load.Quantile(handoffs, 0.5)), microseconds(metricLate, load.Quantile(handoffs, 0.99))}, nil
}

// latchKind hands an election over.
type latchKind struct{}

// latchPause is the time before each handover, in which the former leader starts to wait. etcd's candidate does so at the
// server's next tick, every 100 ms.
const latchPause = 120 * time.Millisecond

func (latchKind) ownSessions() bool { return false }
func (latchKind) isCounted() bool   { return false }

func (latchKind) run(_ context.Context, s Stage) ([]Value, error) {
	spans, err := s.crew.Latch(s.Load.Path, s.handovers, latchPause)
	if err != nil {
		return nil, err
	}
	handoffs := make([]time.Duration, len(spans))
	for i, span := range spans {
		handoffs[i] = time.Duration(span.Acquired - span.Releasing)
	}
	return []Value{microseconds(metricHandoff, load.Quantile(handoffs, 0.5)), microseconds(metricLate, load.Quantile(handoffs, 0.99))}, nil
}
