package reliability_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// losses are the faults that a lease can't survive, because its holder knows only one server.
var losses = []fault{
	{name: "line held silently", target: everywhere, strike: holdLines, heal: releaseLines},
	{name: "follower cut off from its leader", target: aFollower, strike: isolate, heal: rejoin},
	{name: "leader cut off from its quorum", target: theLeader, strike: isolateAndElect, heal: rejoin},
	{name: "server frozen", target: aFollowerOrTheLeader, strike: freeze, heal: thaw},
	{name: "all servers down", target: everywhere, strike: outage, heal: nothing},
}

// usual has the usual ticks of 2 s, which leave a session of 4 s the least room, because shorter sessions are refused. A
// server that is cut off from the others continues for syncLimit × tickTime, twice as long as usual, and answers its
// clients meanwhile.
var usual = ensemble.Config{Nodes: 3, TickTime: 2 * time.Second, Properties: map[string]string{"syncLimit": "10"}}

// TestLossBeforeGrant requires that the holder's context ends before the server grants the lock to another contender.
func TestLossBeforeGrant(t *testing.T) {
	t.Parallel()
	for name := range strings.SplitSeq(*sessions, ",") {
		timeout, err := time.ParseDuration(name)
		require.NoError(t, err)
		t.Run(timeout.String(), func(t *testing.T) {
			t.Parallel()
			e := ensemble.New(t, usual)
			random := newRandom(t)
			for _, kind := range losses {
				var distances []time.Duration
				for n := range (*rounds + sideBySide - 1) / sideBySide {
					t.Run(fmt.Sprintf("%s/%d", kind.name, n), func(t *testing.T) {
						s := &scene{e: e, timeout: timeout, random: random}
						distances = append(distances, s.lose(t, kind, n)...)
					})
				}
				summarize(t, kind.name, distances)
			}
		})
	}
}

// summarize prints the time between loss and grant.
func summarize(t *testing.T, name string, distances []time.Duration) {
	t.Helper()
	if len(distances) == 0 {
		return
	}
	slices.Sort(distances)
	early, _ := slices.BinarySearch(distances, 1)
	t.Logf("%s: %d rounds, %d grants before the loss; from loss to grant %v at least, median %v, %v at most",
		name, len(distances), early, rounded(distances[0]), rounded(distances[len(distances)/2]), rounded(distances[len(distances)-1]))
}

// lose takes pairs through one fault and returns the times from each loss to the grant.
func (s *scene) lose(t *testing.T, kind fault, n int) []time.Duration {
	t.Helper()
	ctx := bounded(t, 10*s.timeout)
	require.NoError(t, s.e.WaitServing(ctx))
	s.node = kind.target(ctx, t, s.e, n)
	for i := range sideBySide {
		node := s.at(i)
		server, line := s.e.Server(node), (*faultproxy.Proxy)(nil)
		if s.node == anywhere {
			line = faultproxy.New(t, server)
			server = line.Addr()
		}
		p := newPair(t, dial(t, s.timeout, []string{server}), dial(t, s.timeout, others(s.e, node)))
		if line != nil {
			p.lines = []*faultproxy.Proxy{line}
		}
		s.pairs = append(s.pairs, p)
	}
	return s.succeed(ctx, t, kind)
}

// succeed strikes the pairs, and returns the times from each loss to the grant that follows.
func (s *scene) succeed(ctx context.Context, t *testing.T, kind fault) []time.Duration {
	t.Helper()
	enter(ctx, t, s.pairs, s.random)
	struck := time.Now()
	s.strike(ctx, t, kind)
	var distances []time.Duration
	var leases []*recipes.Lease
	for _, p := range s.pairs {
		lost, next := p.loss(ctx, t)
		distance := next.at.Sub(lost)
		t.Logf("lost %v after the fault, granted %v after it: distance %v", rounded(lost.Sub(struck)), rounded(next.at.Sub(struck)), rounded(distance))
		distances, leases = append(distances, distance), append(leases, next.lease)
	}
	s.heal(ctx, t, kind)
	for i, p := range s.pairs {
		require.ErrorIs(t, p.lease.Release(), recipes.ErrSessionLost)
		require.NoError(t, leases[i].Release())
		p.empty(ctx, t)
	}
	require.Positive(t, slices.MinFunc(distances, cmp.Compare), "a grant came before the loss")
	return distances
}

// loss waits for the next grant and for the end of the lease.
func (p *pair) loss(ctx context.Context, t *testing.T) (lost time.Time, next grant) {
	t.Helper()
	next = granted(ctx, t, p.done)
	select {
	case lost = <-p.lost:
	case <-ctx.Done():
		require.FailNow(t, "granted, and the other lease has not ended")
	}
	require.ErrorIs(t, context.Cause(p.lease.Context()), recipes.ErrSessionLost)
	require.Greater(t, next.lease.FencingToken(), p.lease.FencingToken())
	return lost, next
}

// holdLines silences each line at a different moment. On some of them, data from the server still arrives; data from the
// client may not, because it would keep the session alive.
func holdLines(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	var all sync.WaitGroup // ends with ctx; joined here
	for i, p := range s.pairs {
		while := upTo(s.random, s.timeout/3)
		all.Go(func() {
			pass(ctx, while)
			for _, line := range p.lines {
				if i%3 == 2 {
					line.HoldUp()
				} else {
					line.Hold()
				}
			}
		})
	}
	all.Wait()
}

func releaseLines(_ context.Context, _ *testing.T, s *scene) {
	for _, p := range s.pairs {
		for _, line := range p.lines {
			line.Release()
		}
	}
}

// isolateAndElect cuts the leader off and restarts the others. They elect another leader at once, while this one leads
// until it misses its followers, and answers everything but writes.
func isolateAndElect(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	isolate(ctx, t, s)
	s.restartAll(ctx, t, 0, (s.node+1)%3, (s.node+2)%3)
}

// outage has all servers down for twice the session timeout.
func outage(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	s.restartAll(ctx, t, 2*s.timeout, 0, 1, 2)
}
