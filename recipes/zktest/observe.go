package zktest

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Log is what clients have asked for since [Server.Observe].
type Log struct {
	srv *Server

	mu       sync.Mutex // protects what is below
	requests []Request
	grown    chan struct{} // closed when there is more
}

// Observe starts a log of requests. It is complete: a request is in it before it is
// answered, so that what a call costs can be counted once the call has returned.
func (s *Server) Observe() *Log {
	g := &Log{srv: s, grown: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs = append(s.logs, g)
	return g
}

// observe is called under the server's lock.
func (s *Server) observe(r Request) {
	s.trailLocked(r)
	for _, g := range s.logs {
		g.mu.Lock()
		g.requests = append(g.requests, r)
		close(g.grown)
		g.grown = make(chan struct{})
		g.mu.Unlock()
	}
}

// Stop ends the log; what is in it stays.
func (g *Log) Stop() {
	g.srv.mu.Lock()
	defer g.srv.mu.Unlock()
	g.srv.logs = slices.DeleteFunc(g.srv.logs, func(other *Log) bool { return other == g })
}

// Requests are those with one of ops, in the order in which the server executed them.
// No ops means all but pings and handshakes, as [OpAny] does.
func (g *Log) Requests(ops ...Op) []Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.requests), func(r Request) bool { return !chosen(ops, r) })
}

// Count is how many requests there are with one of ops.
func (g *Log) Count(ops ...Op) int { return len(g.Requests(ops...)) }

// Wait returns once there are n requests with one of ops, or with an error that wraps
// the cause of ctx once that ends.
func (g *Log) Wait(ctx context.Context, n int, ops ...Op) error {
	seen, found := 0, 0
	for {
		g.mu.Lock()
		for ; seen < len(g.requests); seen++ {
			if chosen(ops, g.requests[seen]) {
				found++
			}
		}
		grown := g.grown
		g.mu.Unlock()
		if found >= n {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return fmt.Errorf("zktest: %d of %d requests: %w", found, n, context.Cause(ctx))
		}
	}
}

// chosen tells whether a request has one of ops.
func chosen(ops []Op, r Request) bool {
	if len(ops) == 0 {
		return OpAny.matches(r)
	}
	return slices.ContainsFunc(ops, func(op Op) bool { return op.matches(r) })
}
