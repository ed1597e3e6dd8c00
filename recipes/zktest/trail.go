package zktest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// trailLength is how many requests a failed test shows.
const trailLength = 100

// String says what is asked for, by whom and of which server.
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

// trailLocked keeps the latest requests, pings left out.
func (s *Server) trailLocked(r Request) {
	if r.Op == OpPing {
		return
	}
	if len(s.trail) == 2*trailLength {
		s.trail = append(s.trail[:0], s.trail[trailLength:]...)
	}
	s.trail = append(s.trail, r)
}

// logTrail shows a failed test what clients asked for last.
func (s *Server) logTrail(tb testing.TB) {
	tb.Helper()
	if !tb.Failed() {
		return
	}
	s.mu.Lock()
	latest := s.trail[max(0, len(s.trail)-trailLength):]
	var b strings.Builder
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
