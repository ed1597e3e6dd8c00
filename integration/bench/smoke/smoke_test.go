package smoke_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
	"github.com/zkrecipes/zkrecipes/integration/bench/runner"
	"github.com/zkrecipes/zkrecipes/integration/bench/server"
)

// newServer starts a server in a separate process, so that its allocations are not counted.
func newServer(t *testing.T) server.Server {
	t.Helper()
	srv, err := server.StartZKTest(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	return srv
}

// crews keeps the processes of each peer for all cases.
type crews struct {
	t   *testing.T
	all map[string][]*load.Crew
}

func (c *crews) of(name string, processes int) *load.Crew {
	c.t.Helper()
	for _, crew := range c.all[name] {
		if crew.Size() == processes {
			return crew
		}
	}
	crew, err := load.Start(name, processes, runner.Worker(context.WithoutCancel(c.t.Context()), name))
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, crew.Close()) })
	c.all[name] = append(c.all[name], crew)
	return crew
}

func TestCountedFiguresStayWithinTheirLimits(t *testing.T) {
	srv := newServer(t)
	processes := &crews{t: t, all: map[string][]*load.Crew{}}
	seen := map[string]bool{}
	for _, c := range runner.Cases(true) {
		if !slices.ContainsFunc(limits, func(l limit) bool { return slices.Contains(l.cases, c.Name) }) {
			continue
		}
		seen[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			ours := count(t, c, processes.of(peer.Ours, c.Processes), srv)
			theirs := count(t, c, processes.of(comparedTo, c.Processes), srv)
			for _, l := range limits {
				if !slices.Contains(l.cases, c.Name) {
					continue
				}
				t.Logf("%-12s %8.2f  limit %8.2f  goal %8.2f  %s %8.2f", l.name, l.of(ours), l.max, l.goal, comparedTo, l.of(theirs))
				require.LessOrEqual(t, l.of(ours), l.max, l.name)
			}
		})
	}
	for _, l := range limits {
		for _, name := range l.cases {
			require.True(t, seen[name], "there is no case %s", name)
		}
	}
}

func count(t *testing.T, c runner.Case, crew *load.Crew, srv server.Server) runner.Counted {
	t.Helper()
	counted, err := runner.Count(t.Context(), c, crew, srv)
	require.NoError(t, err)
	t.Logf("%-9s %5d acquisitions, each: %.2f requests, %.2f packets from the server, %.2f events, %.0f bytes (%s)", crew.Name,
		counted.Acquisitions, counted.Requests(), counted.Packets(), counted.EventsEach(), counted.Bytes(), counted.Counts)
	return counted
}

func TestAllocationsOfAPairStayWithinTheirLimit(t *testing.T) {
	srv := newServer(t)
	ours, theirs := allocations(t, srv, peer.Ours), allocations(t, srv, comparedTo)
	t.Logf("allocations of a pair: %.0f, limit %d, goal %d, %s %.0f", ours, allocationLimit, allocationGoal, comparedTo, theirs)
	require.LessOrEqual(t, ours, float64(allocationLimit))
}

func allocations(t *testing.T, srv server.Server, name string) float64 {
	t.Helper()
	peers := peer.OnZooKeeper()
	p := peers[slices.IndexFunc(peers, func(p peer.Peer) bool { return p.Name == name })]
	session, err := p.Open(t.Context(), srv.Addr())
	require.NoError(t, err)
	defer func() { require.NoError(t, session.Close()) }()
	contender, err := session.Contender(t.Context(), "/allocations")
	require.NoError(t, err)
	return testing.AllocsPerRun(1000, func() {
		if err := contender.Lock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := contender.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
