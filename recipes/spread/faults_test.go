package spread_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/spread"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// terms counts the terms of all latches with its listener, and the elections whose leader is stepping down.
type terms struct {
	work       time.Duration // from the end of a term to the return of its work
	stop       chan struct{} // ends all work; nil: never
	begun      atomic.Int32
	ending     atomic.Int32
	mostEnding atomic.Int32
}

func (c *terms) listener() latch.Option {
	return latch.WithListener(latch.Listener{IsLeader: func(term *recipes.Lease) {
		c.begun.Add(1)
		<-term.Context().Done()
		c.mostEnding.Store(max(c.mostEnding.Load(), c.ending.Add(1)))
		select {
		case <-time.After(c.work):
		case <-c.stop:
		}
		c.ending.Add(-1)
	}})
}

// loads returns how many elections each process leads.
func loads(all []*process) (n []int) {
	for _, p := range all {
		n = append(n, p.leads())
	}
	return n
}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

// balanced starts processes that share elections, and waits until they are balanced.
func balanced(t *testing.T, srv *zktest.Server, processes, elections int, opts ...latch.Option) (all []*process) {
	t.Helper()
	for i := range processes {
		all = append(all, start(t, srv, fmt.Sprint("p", i), elections, true, opts...))
	}
	pass(2 * time.Minute)
	for _, n := range loads(all) {
		require.GreaterOrEqual(t, n, elections/processes)
		require.LessOrEqual(t, n, (elections+processes-1)/processes)
	}
	return all
}

// A process that falls silent at any time within a session timeout of its start gets no election, and so costs no election its
// leader.
func TestProcessSilentAfterItsStart(t *testing.T) {
	for _, after := range []time.Duration{0, 30 * time.Millisecond, time.Second, testclient.SessionTimeout - 100*time.Millisecond} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := zktest.NewServer(t)
			all := balanced(t, srv, 3, 12)
			silent := start(t, srv, "silent", 12, true)
			pass(after)
			srv.Partition(silent.client.Conn().SessionID())
			for range 20 {
				pass(time.Second)
				require.Equal(t, []int{4, 4, 4}, loads(all), "silent after %v", after)
			}
			srv.Heal()
			pass(2 * time.Minute)
			require.Equal(t, 3, silent.leads())
		})
	}
}

// One replica of five starts and dies, again and again. However long it lives, elections are without a leader for little of the time.
func TestCrashLoop(t *testing.T) {
	for _, life := range []time.Duration{2 * time.Second, 12 * time.Second, 28 * time.Second} {
		testkit.Bubble(t, func(t *testing.T) {
			const timeout, elections = 30 * time.Second, 20 // the default timeout
			srv := zktest.NewServer(t)
			start := func(id string) *process {
				return startOn(t, testclient.Connect(t, srv, recipes.WithSessionTimeout(timeout)), id, elections, true)
			}
			all := []*process{start("p0"), start("p1"), start("p2"), start("p3")}
			pass(5 * time.Minute)
			without, total := 0, 0
			look := func(d time.Duration, alive ...*process) {
				for range d / time.Second {
					pass(time.Second)
					without, total = without+elections-sum(loads(alive)), total+elections
				}
			}
			for range testkit.Shorter(40, 4) {
				p := start("looping")
				look(life, append(all[:4:4], p)...)
				srv.Partition(p.client.Conn().SessionID())
				look(20*time.Second, all...)
			}
			require.LessOrEqual(t, float64(without), 0.02*float64(total), "a life of %v", life)
			srv.Heal()
			pass(time.Minute)
		})
	}
}

// A new process takes over one election after the other. Only one election at a time has no leader, and there are no more
// handovers than elections that have to move.
func TestOneHandoverAtATime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, c := zktest.NewServer(t), &terms{work: 2 * time.Second}
		all := balanced(t, srv, 2, 24, c.listener())
		c.begun.Store(0)
		c.mostEnding.Store(0)
		all = append(all, start(t, srv, "p2", 24, true, c.listener()))
		pass(testclient.SessionTimeout + 10*time.Second)
		require.LessOrEqual(t, c.begun.Load(), int32(5), "each takes two seconds")
		pass(2 * time.Minute)
		require.Equal(t, []int{8, 8, 8}, loads(all))
		require.LessOrEqual(t, c.mostEnding.Load(), int32(2), "p2 takes from both, and p0 and p1 even out the rest")
		require.LessOrEqual(t, c.begun.Load(), int32(14))
	})
}

// The work of leaders takes ten minutes to end. Each election that has to move is handed over once, and is led by its owner in the end.
func TestSlowStepDowns(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, c := zktest.NewServer(t), &terms{work: 10 * time.Minute, stop: make(chan struct{})}
		defer close(c.stop)
		first := start(t, srv, "p0", 10, true, c.listener())
		pass(time.Minute)
		require.Equal(t, int32(10), c.begun.Load())
		second := start(t, srv, "p1", 10, true, c.listener())
		pass(time.Hour)
		require.Equal(t, []int{5, 5}, []int{first.leads(), second.leads()})
		require.Equal(t, int32(15), c.begun.Load())
		pass(time.Hour)
		require.Equal(t, int32(15), c.begun.Load())
	})
}

// An election that can't move does not keep the others from moving. It is in the log once, and is tried ever more rarely.
func TestElectionThatFails(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		first := start(t, srv, "p0", 6, true)
		pass(time.Second)
		for n := range 5 {
			foreign, err := latch.New(testclient.Connect(t, srv), fmt.Sprint("/shards/", n), latch.WithID("foreign")) // can't be asked to yield
			require.NoError(t, err)
			require.NoError(t, foreign.Start())
		}
		pass(time.Second)
		var log testkit.Log
		second := startOn(t, testclient.Connect(t, srv, recipes.WithLogger(log.Logger(slog.LevelWarn))), "p1", 6, true)
		pass(30 * time.Minute)
		owned := strings.Count(log.String(), "can't take over leadership; retrying")
		require.InDelta(t, 3, owned+second.leads(), 0, "each owned election moves, or is in the log once")
		require.Equal(t, 6, first.leads()+second.leads())
		requests := srv.Observe()
		pass(30 * time.Minute)
		require.LessOrEqual(t, requests.Count(zktest.OpGetChildren2), 3*3*owned, "three for each attempt, every ten minutes")
	})
}

// An idle fleet sends heartbeats, and re-reads what it watches. It lists, writes and logs nothing.
func TestFleetAtRest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var log testkit.Log
		var all []*process
		for i := range 4 {
			client := testclient.Connect(t, srv, recipes.WithLogger(log.Logger(slog.LevelInfo)))
			all = append(all, startOn(t, client, fmt.Sprint("p", i), 12, true))
		}
		pass(5 * time.Minute)
		require.Equal(t, []int{3, 3, 3, 3}, loads(all))
		written := log.String()
		requests := srv.Observe()
		pass(testkit.Shorter(time.Hour, 10*time.Minute))
		for _, op := range []zktest.Op{zktest.OpGetChildren2, zktest.OpCreate2, zktest.OpCreate, zktest.OpDelete, zktest.OpSetData} {
			require.Zero(t, requests.Count(op), op)
		}
		timeouts := int(testkit.Shorter(time.Hour, 10*time.Minute) / testclient.SessionTimeout)
		require.LessOrEqual(t, requests.Count(zktest.OpGetData), timeouts*len(all)*30, "each of 12 elections, 4 members, and some more")
		require.Equal(t, written, log.String())
	})
}

// Each process takes part in other elections. Each election is led by one of its candidates, and is idle afterwards.
func TestDifferentCandidates(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, c := zktest.NewServer(t), &terms{}
		var all []*process
		for i, elections := range []int{3, 6, 9} { // p2 is alone in three, and p0 takes part in three
			all = append(all, start(t, srv, fmt.Sprint("p", i), elections, true, c.listener()))
			pass(time.Minute)
		}
		pass(5 * time.Minute)
		require.Equal(t, 9, sum(loads(all)))
		require.InDelta(t, 1, all[0].leads(), 1)
		require.InDelta(t, 2.5, all[1].leads(), 1)
		require.InDelta(t, 5.5, all[2].leads(), 1)
		before := c.begun.Load()
		pass(time.Hour)
		require.Equal(t, before, c.begun.Load())
	})
}

// The highest priority prevails. The Spread neither takes an election from it, nor moves one to a lower priority. Elections
// without different priorities are balanced.
func TestPrioritiesPrevail(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, c := zktest.NewServer(t), &terms{}
		high := start(t, srv, "high", 8, true, c.listener(), latch.WithPriority(5))
		low := start(t, srv, "low", 8, true, c.listener())
		pass(5 * time.Minute)
		require.Equal(t, []int{8, 0}, []int{high.leads(), low.leads()})
		before := c.begun.Load()
		pass(time.Hour)
		require.Equal(t, before, c.begun.Load())
		require.NoError(t, high.client.Close())
		pass(time.Second)
		require.Equal(t, 8, low.leads())
		high = start(t, srv, "high", 8, true, latch.WithPriority(-5))
		pass(5 * time.Minute)
		require.Equal(t, []int{0, 8}, []int{high.leads(), low.leads()})
	})
}

// The elections led by a process outside of the Spread are left to it.
func TestLeadersOutsideOfTheSpread(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, c := zktest.NewServer(t), &terms{}
		outside := start(t, srv, "outside", 6, false, c.listener())
		pass(time.Second)
		all := []*process{start(t, srv, "p0", 6, true, c.listener()), start(t, srv, "p1", 6, true, c.listener())}
		pass(time.Hour)
		require.Equal(t, 6, outside.leads())
		require.Equal(t, int32(6), c.begun.Load())
		require.NoError(t, outside.client.Close())
		pass(15 * time.Minute)
		require.Equal(t, []int{3, 3}, loads(all))
	})
}

// counted counts the calls of TransferTo.
type counted struct {
	*latch.LeaderLatch

	transfers *atomic.Int32
}

func (c counted) TransferTo(ctx context.Context, id string) error {
	c.transfers.Add(1)
	return c.LeaderLatch.TransferTo(ctx, id)
}

// Terms that end by themselves, as in a rota, are left to the queue most of the time. The owner takes over ever more rarely.
func TestShortTerms(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var transfers atomic.Int32
		for _, id := range []string{"p0", "p1"} {
			p := start(t, srv, id, 0, true)
			l, err := latch.New(p.client, "/shards/1", latch.WithID(id), latch.WithPriority(0), latch.WithMaxHold(20*time.Second))
			require.NoError(t, err)
			require.NoError(t, l.Start())
			_, err = p.spread.Add(counted{l, &transfers})
			require.NoError(t, err)
		}
		pass(20 * time.Minute)
		require.Positive(t, transfers.Load())
		require.Less(t, transfers.Load(), int32(12))
	})
}

// A draining process hands everything over, to the processes that own it from then on: nothing moves again, until the process is replaced.
func TestDrain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, c := zktest.NewServer(t), &terms{work: time.Second}
		all := balanced(t, srv, 4, 36, c.listener())
		leaving := all[0]
		c.begun.Store(0)
		began := time.Now()
		require.NoError(t, leaving.spread.Drain(t.Context()))
		require.Less(t, time.Since(began), 5*time.Second, "nine step-downs of a second, up to eight at once")
		pass(time.Second)
		require.Equal(t, []int{0, 12, 12, 12}, loads(all))
		require.Equal(t, int32(9), c.begun.Load())
		pass(10 * time.Minute)
		require.Equal(t, []int{0, 12, 12, 12}, loads(all), "it takes nothing over")
		require.Less(t, c.begun.Load(), int32(9+8), "the future owners are not those of a new list alone")
		require.NoError(t, leaving.spread.Drain(t.Context()), "again")
		require.NoError(t, leaving.spread.Close())
		require.NoError(t, leaving.client.Close())
		all[0] = start(t, srv, "p0", 36, true)
		pass(2 * time.Minute)
		require.Equal(t, []int{9, 9, 9, 9}, loads(all))
	})
}

// Drain names the elections that remain, at once if no process can take them over, or at the end of its context.
func TestDrainThatFails(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, c := zktest.NewServer(t), &terms{}
		p := start(t, srv, "p0", 3, true, c.listener())
		pass(time.Minute)
		require.ErrorIs(t, p.spread.Drain(t.Context()), recipes.ErrNoCandidate)
		require.Equal(t, 3, p.leads())

		other := start(t, srv, "p1", 3, true)
		pass(time.Second)
		require.NoError(t, other.spread.Drain(t.Context()), "it leads nothing")
		pass(time.Second) // the others know
		require.ErrorIs(t, other.spread.Start(), recipes.ErrAlreadyStarted)
		err := p.spread.Drain(t.Context())
		require.ErrorIs(t, err, recipes.ErrNoCandidate, "the other drains as well")
		require.ErrorContains(t, err, "spread: drain "+meeting)
		require.ErrorContains(t, err, "latch /shards/")
		require.NoError(t, p.spread.Close())
		require.ErrorIs(t, p.spread.Drain(t.Context()), recipes.ErrClosed)

		unstarted, err := spread.New(p.client, meeting, spread.WithID("p2"))
		require.NoError(t, err)
		require.ErrorIs(t, unstarted.Drain(t.Context()), recipes.ErrNotStarted)
	})
}

// A Drain that found no process to take over finds one that joined since.
func TestDrainAfterAnotherProcessJoined(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		p := start(t, srv, "p0", 3, true)
		pass(time.Minute)
		require.ErrorIs(t, p.spread.Drain(t.Context()), recipes.ErrNoCandidate)
		other := start(t, srv, "p1", 3, true)
		pass(time.Second)
		require.NoError(t, p.spread.Drain(t.Context()))
		pass(time.Second)
		require.Equal(t, 3, other.leads())
	})
}

// A Drain without a server ends soon if the process leads nothing.
func TestDrainWithoutAServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		_, p := start(t, srv, "p0", 3, true), start(t, srv, "p1", 3, true)
		pass(time.Second)
		srv.Stop()
		pass(testclient.SessionTimeout)
		began := time.Now()
		require.NoError(t, p.spread.Drain(t.Context()))
		require.LessOrEqual(t, time.Since(began), testclient.SessionTimeout/6)
	})
}

// The context of Drain bounds the wait for the leaders' work, and Close and the end of the client end it.
func TestDrainThatIsEnded(t *testing.T) {
	for name, end := range map[string]func(p *process, cancel context.CancelFunc){
		"context": func(_ *process, cancel context.CancelFunc) { cancel() },
		"close":   func(p *process, _ context.CancelFunc) { _ = p.spread.Close() },
		"client":  func(p *process, _ context.CancelFunc) { _ = p.client.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv, c := zktest.NewServer(t), &terms{work: 8 * time.Second}
				all := balanced(t, srv, 2, 4, c.listener())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(3*time.Second, func() { end(all[0], cancel) })
				began := time.Now()
				require.Error(t, all[0].spread.Drain(ctx))
				require.InDelta(t, 3*time.Second, time.Since(began), float64(6*time.Second))
				pass(time.Minute)
				require.Equal(t, 2+2, all[1].leads(), "the step-downs had begun")
			})
		})
	}
}
