package reliability_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	createdFor = 4 * time.Second  // the timeout of the holders' sessions at their creation
	toldLater  = 20 * time.Second // and the one granted after a rolling restart
)

// silentAsTheLeaderDies is enough, because only the new leader decides when the session expires.
var silentAsTheLeaderDies = fault{name: "silent as the leader dies", target: everywhere, strike: silenceAndChangeLeader, heal: releaseAndStart}

// TestRaisedSessionBound requires that a new leader expires a session after the 4 s of its creation, although its latest
// handshake granted 20 s, because minSessionTimeout was raised by a rolling restart. The holder's context ends before.
func TestRaisedSessionBound(t *testing.T) {
	t.Parallel()
	e := ensemble.New(t, quick)
	random := newRandom(t)
	var distances []time.Duration
	for n := range (*rounds + sideBySide - 1) / sideBySide {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := &scene{e: e, timeout: toldLater, node: anywhere, random: random}
			distances = append(distances, s.raise(t)...)
		})
	}
	summarize(t, silentAsTheLeaderDies.name, distances)
}

// raise takes pairs through a raised bound and the end of the leader, and returns the times from each loss to the grant.
func (s *scene) raise(t *testing.T) []time.Duration {
	t.Helper()
	ctx := bounded(t, 10*s.timeout)
	s.bound(ctx, t, "") // undo the change of another round, while no client is connected
	s.restartAll(ctx, t, 0, 0, 1, 2)
	require.NoError(t, s.e.WaitServing(ctx))
	var holders []*recipes.Client
	var lines [sideBySide][]*faultproxy.Proxy
	var ids [sideBySide]int64
	for i := range sideBySide {
		var servers []string
		for _, server := range s.e.Servers() {
			line := faultproxy.New(t, server)
			lines[i], servers = append(lines[i], line), append(servers, line.Addr())
		}
		holders = append(holders, dial(t, createdFor, servers))
		ids[i] = holders[i].Conn().SessionID()
	}
	s.bound(ctx, t, fmt.Sprint(toldLater.Milliseconds()))
	require.NoError(t, s.e.RollingRestart(ctx, nil))
	for i, holder := range holders {
		testkit.Eventually(t, func() bool { return holder.SessionTimeout() == toldLater }, "the server grants more")
		require.Equal(t, ids[i], holder.Conn().SessionID(), "it is the same session")
		p := newPair(t, holder, dial(t, toldLater, s.e.Servers()))
		p.lines = lines[i]
		s.pairs = append(s.pairs, p)
	}
	return s.succeed(ctx, t, silentAsTheLeaderDies)
}

// bound sets the shortest session timeout, "" for the servers' own, from their next start on.
func (s *scene) bound(ctx context.Context, t *testing.T, milliseconds string) {
	t.Helper()
	each(t, []int{0, 1, 2}, func(node int) error {
		return s.e.Configure(ctx, node, map[string]string{"minSessionTimeout": milliseconds})
	})
}

func silenceAndChangeLeader(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	s.node = theLeader(ctx, t, s.e, 0)
	for _, p := range s.pairs {
		for _, line := range p.lines {
			line.Hold()
		}
	}
	require.NoError(t, s.e.Kill(ctx, s.node))
}

func releaseAndStart(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	startAgain(ctx, t, s)
	releaseLines(ctx, t, s)
}
