package faultproxy

import (
	"maps"
	"slices"
	"sync"
)

// Counts is the traffic since the start or the last ResetCounts. It includes requests dropped by a rule.
type Counts struct {
	Conns     int            // connections accepted, refused ones included
	Requests  map[string]int // by operation; handshakes are "connect", pings are not here
	Pings     int
	Events    int // watch events
	BytesUp   int64
	BytesDown int64 // written to the client, frame lengths included, as in BytesUp
}

// Total is the number of requests without handshakes and pings.
func (c Counts) Total() int {
	total := 0
	for op, n := range c.Requests {
		if op != opConnect {
			total += n
		}
	}
	return total
}

// tally keeps the counts and the log.
type tally struct {
	mu     sync.Mutex
	counts Counts    // guarded by mu
	record bool      // guarded by mu
	log    []Request // guarded by mu
}

func (t *tally) snapshot() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	c.Requests = maps.Clone(c.Requests)
	if c.Requests == nil {
		c.Requests = map[string]int{}
	}
	return c
}

func (t *tally) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts = Counts{}
}

func (t *tally) setRecord(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.record = on
	t.log = nil
}

func (t *tally) recorded() []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.log)
}

func (t *tally) connection() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Conns++
}

func (t *tally) request(r Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.record {
		t.log = append(t.log, r)
	}
	if r.Op == opPing {
		t.counts.Pings++
		return
	}
	if t.counts.Requests == nil {
		t.counts.Requests = map[string]int{}
	}
	t.counts.Requests[r.Op]++
}

func (t *tally) event() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Events++
}

func (t *tally) up(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.BytesUp += int64(n)
}

func (t *tally) down(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.BytesDown += int64(n)
}
