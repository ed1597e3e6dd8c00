package zktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Log holds the clients' requests since [Server.Observe].
type Log struct {
	srv *Server

	mu       sync.Mutex // protects the fields below
	requests []Request
	grown    chan struct{} // closed when requests grows
}

// Observe starts a log of requests. The log is complete. A request is logged before it is answered, so that the
// requests of a call can be counted once the call returns.
func (s *Server) Observe() *Log {
	g := &Log{srv: s, grown: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs = append(s.logs, g)
	return g
}

// observe adds r to the trail and to every log. Called under the server's lock.
func (s *Server) observe(r Request) {
	s.trail.add(r)
	for _, g := range s.logs {
		g.mu.Lock()
		g.requests = append(g.requests, r)
		close(g.grown)
		g.grown = make(chan struct{})
		g.mu.Unlock()
	}
}

// Stop ends the log, which keeps its requests.
func (g *Log) Stop() {
	g.srv.mu.Lock()
	defer g.srv.mu.Unlock()
	g.srv.logs = slices.DeleteFunc(g.srv.logs, func(other *Log) bool { return other == g })
}

// Requests returns the requests with one of ops, in the order in which the server
// executed them. No ops means all requests but pings and handshakes, as [OpAny] does.
func (g *Log) Requests(ops ...Op) []Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.requests), func(r Request) bool { return !chosen(ops, r) })
}

// Count returns the number of requests with one of ops.
func (g *Log) Count(ops ...Op) int { return len(g.Requests(ops...)) }

// Wait returns once the log has n requests with one of ops, or once ctx ends, with an
// error that wraps the cause of ctx.
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

// chosen reports whether a request has one of ops.
func chosen(ops []Op, r Request) bool {
	if len(ops) == 0 {
		return OpAny.matches(r)
	}
	return slices.ContainsFunc(ops, func(op Op) bool { return op.matches(r) })
}

// trailLength is the number of requests that a failed test shows.
const trailLength = 100

// trail holds the latest requests, pings left out. The server's lock guards it.
type trail []Request

// add records a request unless it is a ping.
func (t *trail) add(r Request) {
	if r.Op == OpPing {
		return
	}
	if len(*t) == 2*trailLength {
		*t = append((*t)[:0], (*t)[trailLength:]...)
	}
	*t = append(*t, r)
}

// logTrail logs the clients' latest requests if the test failed.
func (s *Server) logTrail(tb testing.TB) {
	tb.Helper()
	if !tb.Failed() {
		return
	}
	s.mu.Lock()
	latest := s.trail[max(0, len(s.trail)-trailLength):]
	var b strings.Builder
	if running, all := s.running(), len(s.members); all > 1 && !s.hasQuorum() {
		fmt.Fprintf(&b, "\n\t%d of %d servers run, which is no quorum: clients are refused", running, all)
	}
	for _, r := range latest {
		if len(s.members) == 1 {
			r.Server = ""
		}
		fmt.Fprintf(&b, "\n\t%9s  %v", "+"+r.Time.Sub(s.began).Round(time.Millisecond).String(), r)
	}
	s.mu.Unlock()
	if b.Len() > 0 {
		tb.Log("zktest: the latest requests, pings left out:" + b.String())
	}
}

// String names the operation, the path, the session and the server of a request.
func (r Request) String() string {
	who := "a new session"
	if r.Session != 0 {
		who = label(r.Session)
	}
	words := []string{r.Op.String()}
	if r.Path != "" {
		words = append(words, r.Path)
	}
	words = append(words, "by", who)
	if r.Server != "" {
		words = append(words, "at", r.Server)
	}
	return strings.Join(words, " ")
}
