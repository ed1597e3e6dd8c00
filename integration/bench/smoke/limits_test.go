package smoke_test

import (
	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
	"github.com/zkrecipes/zkrecipes/integration/bench/runner"
)

// figure is what is counted, for each acquisition.
type figure struct {
	name string
	of   func(runner.Counted) float64
}

var (
	requests = figure{"requests", runner.Counted.Requests}
	packets  = figure{"packets", runner.Counted.Packets}
	trips    = figure{"round trips", runner.Counted.TripsEach}
	events   = figure{"events", runner.Counted.EventsEach}
	bytes    = figure{"bytes", runner.Counted.Bytes}
)

// limit bounds a figure of this library. The goal is the desired limit; it is printed and not asserted. Both are 0 where there
// is none.
type limit struct {
	cases []string
	figure
	max, goal float64
}

var (
	two   = []string{"contended-2-8s", "contended-2-8p"}
	few   = []string{"contended-8-8s", "contended-8-8p"}
	many  = []string{"contended-64-8s", "contended-64-8p"}
	crowd = []string{"contended-256-8s", "contended-256-8p"}
)

// limits leave room for a hold of more than 6 ms, and a wait of more than 3 s, on a slow machine: either reads its znode.
var limits = []limit{
	{[]string{"pair"}, requests, 3.3, 3.01},
	{[]string{"pair"}, packets, 3.6, 3.01},
	{[]string{"pair"}, trips, 2.3, 2.01},
	{[]string{"pair"}, bytes, 1000, 0},
	{two, requests, 5.1, 5.0},
	{two, packets, 6.2, 6.0},
	{few, requests, 5.4, 5.0},
	{few, packets, 6.8, 6.0},
	{many, requests, 5.0, 5.0},
	{many, packets, 6.4, 6.0},
	{crowd, requests, 4.4, 5.0},
	{crowd, packets, 5.6, 6.0},
	// Buyers of the sessions come interleaved, so that nearly every handover is one between two sessions.
	{[]string{"buyers-8s-0ms"}, requests, 5.2, 5.0},
	{[]string{"drain-256-1s"}, requests, 1.2, 0},
	// The order of arrival decides how many neighbours share a session. The cost is highest if none do, or if they come in
	// pairs: a delete and a list for each handover, or for two handovers two deletes, a list, and the watch on the next
	// predecessor.
	{[]string{"drain-256", "drain-256-8p"}, requests, 2.3, 0},
	{[]string{"drain-256", "drain-256-8p"}, events, 2.05, 0},
}

// allocationLimit and its goal are for one pair, including the goroutines of the client.
const allocationLimit, allocationGoal = 45, 45

// comparedTo is the peer that is counted beside this library.
const comparedTo = peer.ZKLock
