package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/integration/bench/meter"
	"github.com/zkrecipes/zkrecipes/integration/bench/server"
)

// Counted is the traffic between one peer and ZooKeeper in one run of a case.
type Counted struct {
	Case, Peer   string
	Acquisitions int // of a drain: those by waiters
	meter.Counts
}

// Requests is how many were sent for each acquisition.
func (c Counted) Requests() float64 { return c.each(c.Total()) }

// Packets is the number of packets from the server per acquisition: answers and watch events.
func (c Counted) Packets() float64 { return c.each(c.PacketsDown()) }

// EventsEach is the number of watch events per acquisition.
func (c Counted) EventsEach() float64 { return c.each(c.Events) }

// TripsEach is the number of round trips per acquisition. It is meaningful only for a single contender.
func (c Counted) TripsEach() float64 { return c.each(c.Trips) }

// Bytes is how many passed in both directions for each acquisition.
func (c Counted) Bytes() float64 { return c.each(int(c.BytesUp + c.BytesDown)) }

func (c Counted) each(n int) float64 { return float64(n) / float64(c.Acquisitions) }

// Count runs a loop or a drain once with a meter between the crew and the server. The crew has no sessions before and after.
// But for a fresh lock, each lock is used before anything is counted.
func Count(ctx context.Context, c Case, crew *load.Crew, srv server.Server) (counted Counted, err error) {
	m, err := meter.Start(srv.Addr())
	if err != nil {
		return Counted{}, err
	}
	defer m.Close()
	if err := crew.Open(m.Addr(), c.Sessions); err != nil {
		return Counted{}, err
	}
	defer func() { err = errors.Join(err, crew.CloseSessions()) }()
	s := NewStage(c, crew, srv)
	s.Load.Path = fmt.Sprintf("/%s-counted-%d", c.Name, time.Now().UnixNano())
	if !c.Fresh {
		each := s.Load
		if each.Basket == 0 { // a load with baskets takes the same ones again
			each.Pairs, each.Contenders = each.Locks, each.Locks
		}
		if _, err := crew.Loop(each); err != nil {
			return Counted{}, err
		}
	}
	spans, err := countSpans(ctx, s, m)
	if err != nil {
		return Counted{}, err
	}
	if err := checkExclusion(s, spans); err != nil {
		return Counted{}, err
	}
	counted = Counted{Case: c.Name, Peer: crew.Name, Acquisitions: len(spans), Counts: m.Counts()}
	return counted, nil
}

// countSpans runs the load, and counts from the start of the measured part.
func countSpans(ctx context.Context, s Stage, m *meter.Meter) ([]load.Span, error) {
	if _, ok := s.kind.(drainKind); !ok {
		m.Reset()
		return s.crew.Loop(s.Load)
	}
	q, err := formQueue(ctx, s, passing(m))
	if err != nil {
		return nil, err
	}
	m.Reset()
	spans, err := q.drain()
	if err != nil {
		return nil, err
	}
	return spans[:len(spans)-1], nil // the holder's was before
}
