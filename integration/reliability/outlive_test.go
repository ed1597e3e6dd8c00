package reliability_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
)

// quick are settings with which a silent leader is noticed in time: syncLimit × tickTime is 2 s, less than a third of the
// session timeout. So is initLimit × tickTime, because an election may fail if other servers do not know of it yet, and is
// repeated after that time.
var quick = ensemble.Config{
	Nodes: 3, TickTime: 500 * time.Millisecond, Properties: map[string]string{"syncLimit": "4", "initLimit": "4"},
}

// TestRestartsEndNoLease requires that a lease survives an operator's restarts, and that a waiter keeps its place.
func TestRestartsEndNoLease(t *testing.T) {
	outliveAll(t, []fault{
		{name: "rolling restart", target: everywhere, strike: rollingRestart, heal: nothing},
		{name: "leader killed", target: everywhere, strike: changeLeader, heal: startAgain},
	})
}

// TestSilentServersEndNoLease requires that a lease survives a server that falls silent without closing a socket, and
// that a waiter keeps its place. The unanswered heartbeat closes the socket in time.
func TestSilentServersEndNoLease(t *testing.T) {
	outliveAll(t, []fault{
		{name: "follower frozen", target: aFollower, strike: freeze, heal: thaw},
		{name: "leader frozen", target: theLeader, strike: freeze, heal: thaw},
		{name: "follower powered off", target: aFollower, strike: powerOff, heal: boot},
		{name: "leader powered off", target: theLeader, strike: powerOff, heal: boot},
	})
}

func outliveAll(t *testing.T, faults []fault) {
	t.Helper()
	t.Parallel()
	e := ensemble.New(t, quick)
	random := newRandom(t)
	for _, kind := range faults {
		var left []time.Duration
		for n := range *times {
			t.Run(fmt.Sprintf("%s/%d", kind.name, n), func(t *testing.T) {
				s := &scene{e: e, timeout: calm, random: random}
				left = append(left, s.outlive(t, kind, n)...)
			})
		}
		if len(left) > 0 {
			t.Logf("%s: %d faults, %d of %d leases kept, trust left %v at least", kind.name, *times, len(left), *times*sideBySide, rounded(slices.Min(left)))
		}
	}
}

// outlive takes pairs through one fault, and returns how much trust was left to each at the worst moment.
func (s *scene) outlive(t *testing.T, kind fault, n int) []time.Duration {
	t.Helper()
	ctx := bounded(t, 10*s.timeout)
	require.NoError(t, s.e.WaitServing(ctx))
	s.node = kind.target(ctx, t, s.e, n)
	for i := range sideBySide {
		node := s.at(i)
		s.pairs = append(s.pairs, newPair(t, connectAt(t, s.e, node, s.timeout), connectAt(t, s.e, (node+i)%3, s.timeout)))
	}
	enter(ctx, t, s.pairs, s.random)
	s.strike(ctx, t, kind)
	s.unharmed(ctx, t)
	s.heal(ctx, t, kind)
	s.unharmed(ctx, t)
	var left []time.Duration
	for _, p := range s.pairs {
		left = append(left, time.Duration(p.least.Load()))
		p.handOver(ctx, t)
	}
	t.Logf("trust left at the worst moment: %v", left)
	return left
}

// unharmed waits for a proof of each lease, and requires that nothing changed.
func (s *scene) unharmed(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, p := range s.pairs {
		p.proven(t)
	}
	for _, p := range s.pairs {
		p.unmoved(ctx, t)
	}
}

// rollingRestart stops each server in order and starts it again.
func rollingRestart(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	require.NoError(t, s.e.RollingRestart(ctx, func(int) error {
		s.unharmed(ctx, t)
		return nil
	}))
}

// changeLeader kills the leader, and returns when another one leads.
func changeLeader(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	s.node = theLeader(ctx, t, s.e, 0)
	require.NoError(t, s.e.Kill(ctx, s.node))
	require.NotEqual(t, s.node, theLeader(ctx, t, s.e, 0))
}

func startAgain(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	require.NoError(t, s.e.StartNode(ctx, s.node))
}
