package runner

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
	"github.com/zkrecipes/zkrecipes/integration/bench/server"
)

func TestMain(m *testing.M) {
	role := load.Role()
	if role == nil {
		goleak.VerifyTestMain(m)
		return
	}
	serve := server.ServeZKTest
	if role[0] == RoleWorker {
		serve = func() error { return load.Serve(os.Stdin, os.Stdout, peer.OnZooKeeper(), role[1]) }
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runOn runs a case on package zktest.
func runOn(t *testing.T, c Case, rounds int) ([]Result, []Counted) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	srv, err := server.StartZKTest(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	var stages []Stage
	for _, name := range c.Peers {
		crew, err := load.Start(name, c.Processes, Worker(ctx, name))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, crew.Close()) })
		stages = append(stages, NewStage(c, crew, srv))
	}
	results, counted, err := Run(ctx, c, stages, rounds, 1, io.Discard)
	require.NoError(t, err)
	require.Len(t, results, rounds*len(c.Peers))
	for _, r := range results {
		for _, v := range r.Values {
			require.NotZero(t, v.Number, "%s: %s", r.Peer, v.Name)
		}
	}
	return results, counted
}

var everyLock = []string{peer.Ours, peer.ZKLock, peer.Listed, peer.Pipelined, peer.Raw}

// A run fails when two contenders hold the lock at once, so that a success shows exclusion for all peers.
func TestContendersTakeTurns(t *testing.T) {
	for _, processes := range []int{1, 2} {
		results, counted := runOn(t, Case{
			Name: "turns", Peers: everyLock, Processes: processes, Sessions: 2,
			Load: load.Load{Locks: 1, Contenders: 6, Pairs: 120}, kind: loopKind{},
		}, 2)
		require.Equal(t, metricRate, results[0].Values[0].Metric)
		require.Len(t, counted, len(everyLock))
		for _, c := range counted {
			require.Equal(t, 120, c.Acquisitions)
			require.Equal(t, 120, c.Counts.Requests["delete"], c.Peer)
		}
	}
}

func TestRoundsBeginWithAnotherPeer(t *testing.T) {
	results, _ := runOn(t, Case{
		Name: "rotation", Peers: []string{peer.Unchecked, peer.Raw, peer.Listed}, Processes: 1, Sessions: 1,
		Load: load.Load{Locks: 1, Contenders: 1, Pairs: 5}, kind: loopKind{},
	}, 3)
	var order []string
	for _, r := range results {
		order = append(order, r.Peer)
	}
	require.Equal(t, []string{
		peer.Raw, peer.Unchecked, peer.Listed, // of Unchecked, Raw, Listed from Raw on, backwards
		peer.Listed, peer.Unchecked, peer.Raw,
		peer.Unchecked, peer.Listed, peer.Raw, // backwards
	}, order)
}

func TestTheLimitTakesTwoRoundTrips(t *testing.T) {
	_, counted := runOn(t, Case{
		Name: "trips", Peers: []string{peer.Unchecked, peer.Listed, peer.Raw}, Processes: 1, Sessions: 1,
		Load: load.Load{Locks: 1, Contenders: 1, Pairs: 100}, kind: loopKind{},
	}, 1)
	for i, want := range []struct{ requests, trips, packets float64 }{{2, 2, 2}, {3, 3, 3}, {3, 2, 3}} {
		require.InDelta(t, want.requests, counted[i].Requests(), 0.01, counted[i].Peer)
		require.InDelta(t, want.trips, counted[i].TripsEach(), 0.01, counted[i].Peer)
		require.InDelta(t, want.packets, counted[i].Packets(), 0.01, counted[i].Peer)
	}
}

func TestFormedQueueDrains(t *testing.T) {
	for _, processes := range []int{1, 2} {
		_, counted := runOn(t, Case{
			Name: "drained", Peers: everyLock, Processes: processes, Sessions: 2, Load: load.Load{Locks: 1, Contenders: 20}, kind: drainKind{},
		}, 1)
		for _, c := range counted {
			require.Equal(t, 20, c.Acquisitions)
			require.Equal(t, 21, c.Counts.Requests["delete"], "%s: the holder's, too", c.Peer)
			require.Zero(t, c.Counts.Requests["create"], c.Peer)
		}
	}
}

func TestBuyersComeOnce(t *testing.T) {
	results, counted := runOn(t, Case{
		Name: "buyers", Peers: everyLock, Processes: 1, Sessions: 2, Fresh: true,
		Load: load.Load{Locks: 1, Contenders: 30, Hold: time.Millisecond}, kind: loopKind{},
	}, 1)
	require.Equal(t, metricWall, results[0].Values[0].Metric)
	require.Greater(t, results[0].Values[0].Number, 30.0, "milliseconds in the section")
	require.Equal(t, 30, counted[0].Acquisitions)
}

func TestDistinctLocksDoNotExcludeEachOther(t *testing.T) {
	results, _ := runOn(t, Case{
		Name: "distinct", Peers: everyLock, Processes: 1, Sessions: 2, Load: load.Load{Locks: 4, Contenders: 4, Pairs: 100}, kind: loopKind{},
	}, 1)
	require.Equal(t, metricRate, results[0].Values[0].Metric)
}

func TestWaitersAreWeighed(t *testing.T) {
	results, _ := runOn(t, Case{
		Name: "waiters", Peers: []string{peer.Ours, peer.ZKLock}, Processes: 1, Sessions: 2, Fresh: true,
		Load: load.Load{Locks: 4, Contenders: 200}, kind: waitersKind{},
	}, 1)
	for _, r := range results {
		for _, v := range r.Values {
			if v.Metric == metricThreads {
				require.InDelta(t, 1.5, v.Number, 1.5, "%s: a goroutine at least, three at most", r.Peer)
			}
		}
	}
}

// Leftovers of earlier rounds in a process must not hide the memory of a waiter.
func TestMemoryIsThatOfAnotherProcess(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	srv, err := server.StartZKTest(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	started := 0
	crew, err := load.Start(peer.ZKLock, 1, func() (*exec.Cmd, error) {
		started++
		return Worker(ctx, peer.ZKLock)()
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, crew.Close()) }()
	c := Case{Name: "weighed", Processes: 1, Sessions: 1, Load: load.Load{Path: "/weighed", Locks: 1, Contenders: 5}, kind: waitersKind{}}
	for round := 1; round <= 2; round++ {
		_, err := c.kind.run(ctx, NewStage(c, crew, srv))
		require.NoError(t, err)
		require.Equal(t, 1+round, started, "one for each round, besides the one of all rounds")
	}
}

func TestStormEnds(t *testing.T) {
	results, _ := runOn(t, Case{
		Name: "storm", Peers: []string{peer.Ours}, Processes: 1, Sessions: 2, Fresh: true, Load: load.Load{Locks: 1, Contenders: 20}, kind: stormKind{},
	}, 1)
	require.Equal(t, metricAgain, results[0].Values[0].Metric)
	require.GreaterOrEqual(t, results[0].Values[1].Number, 1.0, "each waiter reads once more")
}

func TestLatchIsHandedOver(t *testing.T) {
	results, _ := runOn(t, Case{
		Name: "latch", Peers: []string{peer.Ours, peer.Raw}, Processes: 1, Sessions: 2, Load: load.Load{Locks: 1, Contenders: 2}, kind: latchKind{}, handovers: 5,
	}, 1)
	require.Equal(t, metricHandoff, results[0].Values[0].Metric)
}

// A cohort sends one create for all buyers of a process.
func TestCohortsAreCounted(t *testing.T) {
	results, counted := runOn(t, Case{
		Name: "cohorts", Peers: []string{peer.Cohort, peer.Ours}, Base: peer.Cohort, Processes: 2, Sessions: 2, Fresh: true,
		Load: load.Load{Locks: 1, Contenders: 40, Hold: time.Millisecond}, kind: loopKind{},
	}, 1)
	require.Equal(t, metricWall, results[0].Values[0].Metric)
	require.Equal(t, 40, counted[0].Acquisitions)
	require.Less(t, counted[0].Counts.Requests["create2"], 10)
	require.GreaterOrEqual(t, counted[1].Counts.Requests["create2"], 40, "some twice, because the directory was missing")
}

// Where each waiter is to have a znode, no session has more waiters than places.
func TestWaitersHaveZnodes(t *testing.T) {
	for _, short := range []bool{true, false} {
		for _, c := range Cases(short) {
			switch c.kind.(type) {
			case waitersKind, stormKind, drainKind:
				require.LessOrEqual(t, (c.Load.Contenders+c.Sessions-1)/c.Sessions, waitersEach, c.Name)
			}
		}
	}
}

// A lock that does not exclude is found out.
func TestOverlapsFailTheRun(t *testing.T) {
	s := Stage{Case: Case{Load: load.Load{Locks: 1}}, crew: &load.Crew{Name: peer.Ours}}
	spans := []load.Span{{Acquired: 1, Releasing: 10}, {Acquired: 5, Releasing: 11}}
	require.ErrorContains(t, checkExclusion(s, spans), "1 acquisitions while another one held the lock")

	s.Load = load.Load{Locks: 20, Basket: 2}
	spans[0].Items, spans[1].Items = []int{1, 2}, []int{2, 3}
	require.ErrorContains(t, checkExclusion(s, spans), "1 acquisitions while another one held the lock")
	spans[1].Items = []int{3, 4}
	require.NoError(t, checkExclusion(s, spans))
}

var everyBasket = []string{peer.Ours, peer.OneByOne, peer.ZKLock}

// As with single locks, the run fails when two contenders hold an item at once.
func TestBasketsTakeTurns(t *testing.T) {
	results, counted := runOn(t, Case{
		Name: "baskets", Peers: everyBasket, Processes: 1, Sessions: 2, Load: load.Load{Locks: 6, Basket: 3, Contenders: 6, Pairs: 120}, kind: loopKind{},
	}, 2)
	require.Equal(t, metricWait, results[0].Values[1].Metric)
	require.Equal(t, metricLongest, results[0].Values[2].Metric)
	require.GreaterOrEqual(t, results[0].Values[2].Number, results[0].Values[1].Number)
	for _, c := range counted {
		require.Equal(t, 120, c.Acquisitions)
	}
}

func TestFreeMultilockTakesTwoTransactions(t *testing.T) {
	results, counted := runOn(t, Case{
		Name: "basket", Peers: everyBasket, Processes: 1, Sessions: 1, Load: load.Load{Locks: 10, Basket: 10, Contenders: 1, Pairs: 40}, kind: loopKind{},
	}, 1)
	require.Equal(t, metricPair, results[0].Values[0].Metric)
	require.Equal(t, 2*40, counted[0].Counts.Requests["multi"])
	require.Equal(t, 10*40, counted[1].Counts.Requests["create2"])
	require.Equal(t, 10*40, counted[2].Counts.Requests["delete"])
}

// The spans of a peer that does not exclude overlap, so the check knows their items. Each basket is taken once.
func TestSpansKnowTheirItems(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	srv, err := server.StartZKTest(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	crew, err := load.Start(peer.Unchecked, 1, Worker(ctx, peer.Unchecked))
	require.NoError(t, err)
	defer func() { require.NoError(t, crew.Close()) }()
	require.NoError(t, crew.Open(srv.Addr(), 2))
	spans, err := crew.Loop(load.Load{Path: "/known", Locks: 6, Basket: 5, Contenders: 8, Pairs: 40, Hold: 2 * time.Millisecond})
	require.NoError(t, err)
	require.Positive(t, load.Overlaps(spans))
	turns := map[int64]bool{}
	for _, s := range spans {
		require.Len(t, s.Items, 5)
		turns[s.Turn] = true
	}
	require.Len(t, turns, 40)
}

func TestCasesHaveNamesOfTheirOwn(t *testing.T) {
	for _, short := range []bool{true, false} {
		var names []string
		for _, c := range Cases(short) {
			require.NotContains(t, names, c.Name)
			require.Positive(t, c.Load.Locks, c.Name)
			require.LessOrEqual(t, c.Load.Basket, c.Load.Locks, c.Name)
			require.Positive(t, c.Processes, c.Name)
			require.NotEmpty(t, c.Cost, c.Name)
			require.Contains(t, c.Peers, peer.Ours)
			require.Contains(t, c.Peers, cmp.Or(c.Base, peer.Ours), c.Name)
			require.Len(t, slices.Compact(slices.Sorted(slices.Values(c.Peers))), len(c.Peers), c.Name)
			names = append(names, c.Name)
		}
	}
	require.Less(t, len(Cases(true)), len(Cases(false)))
}
