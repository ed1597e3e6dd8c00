// Package meter counts the traffic between clients and one ZooKeeper server: requests, packets, round trips, bytes and watch
// events. It changes and delays nothing on purpose, but time is measured without a meter, which is one more hop.
package meter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Counts are the traffic since the meter was started or reset. Pings and the end of a session are left out, and handshakes are
// no requests, because they belong to no lock.
type Counts struct {
	Handshakes int
	Requests   map[string]int // by operation
	Answers    int
	Events     int // watch events
	Trips      int // round trips: requests sent on a connection on which nothing was unanswered
	BytesUp    int64
	BytesDown  int64
}

// Total is the number of requests.
func (c Counts) Total() int {
	total := 0
	for _, n := range c.Requests {
		total += n
	}
	return total
}

// PacketsDown is the number of packets from the server: answers and watch events.
func (c Counts) PacketsDown() int { return c.Answers + c.Events }

// String lists the operations.
func (c Counts) String() string {
	var parts []string
	for _, op := range slices.Sorted(maps.Keys(c.Requests)) {
		parts = append(parts, fmt.Sprintf("%s %d", op, c.Requests[op]))
	}
	return strings.Join(parts, ", ")
}

// tally is where all connections of a meter count.
type tally struct {
	mu     sync.Mutex
	counts Counts // guarded by mu
}

func (t *tally) snapshot() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	c.Requests = maps.Clone(c.Requests)
	return c
}

func (t *tally) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts = Counts{}
}

// line counts the traffic of one connection. Both directions share it.
type line struct {
	tally      *tally
	unanswered int // guarded by tally.mu
	up, down   cutter
}

// sent counts data from the client, before the meter passes it on.
func (l *line) sent(b []byte) {
	l.tally.mu.Lock()
	defer l.tally.mu.Unlock()
	l.up.cut(b, func(head []byte, size int64, first bool) {
		d := proto.NewDecoder(head)
		xid, op := d.Int32(), d.Int32()
		counts := &l.tally.counts
		if first {
			counts.Handshakes++
		}
		if first || xid == proto.XidPing || op == proto.OpCloseSession {
			return
		}
		if counts.Requests == nil {
			counts.Requests = map[string]int{}
		}
		counts.Requests[proto.OpName(op)]++
		counts.BytesUp += size
		if l.unanswered == 0 {
			counts.Trips++
		}
		l.unanswered++
	})
}

// received counts data from the server, before the meter passes it on.
func (l *line) received(b []byte) {
	l.tally.mu.Lock()
	defer l.tally.mu.Unlock()
	l.down.cut(b, func(head []byte, size int64, first bool) {
		xid := proto.NewDecoder(head).Int32()
		if first || xid == proto.XidPing {
			return
		}
		counts := &l.tally.counts
		counts.BytesDown += size
		if xid == proto.XidEvent {
			counts.Events++
			return
		}
		counts.Answers++
		l.unanswered = max(0, l.unanswered-1) // the answer to closing the session was not counted as a request
	})
}
