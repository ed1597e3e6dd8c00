// Package runner runs cases: the same load on one peer after the other, round by round, so that other load on the machine
// affects all peers alike.
package runner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
	"github.com/zkrecipes/zkrecipes/integration/bench/server"
)

// Case is a load, and who is put under it.
type Case struct {
	Name      string
	Title     string
	Cost      string // what dominates the time
	Peers     []string
	Base      string // the peer to compare with the others; "": peer.Ours
	Fsync     bool   // ZooKeeper and etcd wait for their disks
	Processes int
	Sessions  int // of all processes
	Load      load.Load
	Fresh     bool // each round has a fresh path
	kind      kind
	Long      bool // left out of the short form
	handovers int  // of a latch
}

// kind is how a case is run.
type kind interface {
	// run puts one peer under the load once.
	run(ctx context.Context, s Stage) ([]Value, error)
	// ownSessions says that run opens and closes the sessions itself.
	ownSessions() bool
	// isCounted reports whether Count can run the case.
	isCounted() bool
}

// Stage is a case with the processes and the server of one peer.
type Stage struct {
	Case
	crew   *load.Crew
	server server.Server
}

// NewStage puts the parts of a stage together.
func NewStage(c Case, crew *load.Crew, srv server.Server) Stage {
	return Stage{Case: c, crew: crew, server: srv}
}

// Metric is a kind of figure.
type Metric struct {
	Name   string
	Unit   string
	Higher bool // more is better
}

// Value is one figure.
type Value struct {
	Metric
	Number float64
}

// String is the figure with its name and unit.
func (v Value) String() string { return fmt.Sprintf("%s %.4g %s", v.Name, v.Number, v.Unit) }

// Result is the outcome of one round for one peer.
type Result struct {
	Case, Peer string
	Round      int
	Values     []Value
}

var (
	metricPair    = Metric{Name: "pair p50", Unit: "µs"}
	metricPair99  = Metric{Name: "pair p99", Unit: "µs"}
	metricRate    = Metric{Name: "acquisitions", Unit: "acq/s", Higher: true}
	metricHandoff = Metric{Name: "handoff p50", Unit: "µs"}
	metricLate    = Metric{Name: "handoff p99", Unit: "µs"}
	metricWait    = Metric{Name: "wait p50", Unit: "ms"}
	metricLongest = Metric{Name: "longest wait", Unit: "ms"}
	metricWall    = Metric{Name: "wall", Unit: "ms"}
	metricWaiting = Metric{Name: "until all wait", Unit: "ms"}
	metricMemory  = Metric{Name: "heap and stacks", Unit: "B/waiter"}
	metricRSS     = Metric{Name: "resident", Unit: "B/waiter"}
	metricThreads = Metric{Name: "goroutines or threads", Unit: "/waiter"}
	metricAgain   = Metric{Name: "until all wait again", Unit: "ms"}
	metricAsked   = Metric{Name: "requests", Unit: "/waiter"}
	metricDown    = Metric{Name: "from the server", Unit: "KiB"}
)

func microseconds(m Metric, d time.Duration) Value {
	return Value{m, float64(d.Nanoseconds()) / 1e3}
}

func milliseconds(m Metric, d time.Duration) Value {
	return Value{m, float64(d.Nanoseconds()) / 1e6}
}

// excludes reports whether the peer is a lock. The other peers show the cost of two requests.
func excludes(name string) bool { return name != peer.Unchecked }

// onZooKeeper reports whether the peer's requests can be counted.
func onZooKeeper(name string) bool { return !slices.Contains([]string{peer.Etcd, peer.Redsync}, name) }
