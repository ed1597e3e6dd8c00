package points_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// job is one play: a scenario with a fault at one of its points.
type job struct {
	scenario scenario
	point    point
	kind     kind
	round    int
	seed     uint64
}

// tries bounds how often a play is repeated if its fault met no request, because background requests vary.
const tries = 5

// TestFaults makes clients meet every fault at every point, each alone and beside it in one queue.
func TestFaults(t *testing.T) {
	w, seed := newWorld(t), chosenSeed(t)
	t.Run("side by side", func(t *testing.T) {
		t.Run("at every point", func(t *testing.T) {
			t.Parallel()
			everyPoint(t, w, seed)
		})
		t.Run("to a whole queue", func(t *testing.T) {
			t.Parallel()
			wholeQueue(t, w, seed)
		})
	})
	w.isEmpty(t)
}

// everyPoint plays each scenario once for each of its requests, each kind of fault, and each round.
func everyPoint(t *testing.T, w *world, seed uint64) {
	t.Helper()
	began := time.Now()
	crew := newCrew(t, w)
	scenarios := chosen()
	points := crew.trace(t, scenarios)

	var jobs []job
	random := rand.New(rand.NewPCG(seed, 0))
	for i, sc := range scenarios {
		for _, p := range points[i] {
			for k := range kinds {
				for round := range *rounds {
					jobs = append(jobs, job{sc, p, k, round, random.Uint64()})
				}
			}
		}
	}
	random.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	var sum tally
	crew.each(len(jobs), func(worker, i int) {
		if done, failed := sum.add(crew.strike(worker, jobs[i])); done%1000 == 0 {
			t.Logf("%d of %d plays after %v, failures %d", done, len(jobs), time.Since(began).Round(time.Second), failed)
		}
	})

	crew.close(t)
	t.Log(sum.line(scenarios, points, time.Since(began)))
	require.Empty(t, sum.failures)
	if *only == "" {
		require.GreaterOrEqual(t, count(points), 40)
	}
}

func chosen() []scenario {
	all := slices.Concat(acquireScenarios, waitScenarios, revokeScenarios, latchScenarios, selectorScenarios, closeScenarios,
		readWriteScenarios, semaphoreScenarios, multilockScenarios, onceScenarios)
	return slices.DeleteFunc(all, func(sc scenario) bool { return !strings.Contains(sc.part+": "+sc.name, *only) })
}

func count(points [][]point) int { return len(slices.Concat(points...)) }

// crew is workers, each with two clients that no fault touches.
type crew struct {
	world *world
	peers [side][]*recipes.Client
}

func newCrew(t *testing.T, w *world) *crew {
	t.Helper()
	c := &crew{world: w}
	for i := range c.peers {
		c.peers[i] = []*recipes.Client{w.connect(t), w.connect(t)}
	}
	t.Cleanup(func() { c.close(t) })
	return c
}

func (c *crew) close(t *testing.T) {
	t.Helper()
	for _, client := range slices.Concat(c.peers[:]...) {
		require.NoError(t, client.Close())
	}
}

// each does n jobs, side by side.
func (c *crew) each(n int, do func(worker, i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for worker := range c.peers {
		workers.Go(func() { // until there are no more jobs; joined below
			for i := range next {
				do(worker, i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// trace plays each scenario three times without a fault. Its points are the requests common to all plays.
func (c *crew) trace(t *testing.T, scenarios []scenario) [][]point {
	t.Helper()
	const times = 3
	stages := make([]*stage, times*len(scenarios))
	c.each(len(stages), func(worker, i int) { stages[i] = c.play(worker, scenarios[i/times], nil) })
	points := make([][]point, len(scenarios))
	for i, sc := range scenarios {
		var plays [times][]point
		for k, s := range stages[times*i : times*(i+1)] {
			require.Empty(t, s.failures, "%s, without a fault", sc.name)
			plays[k] = s.steps
		}
		points[i] = slices.DeleteFunc(plays[0], func(p point) bool {
			same := func(other point) bool { return other.op == p.op && other.nth == p.nth }
			return !slices.ContainsFunc(plays[1], same) || !slices.ContainsFunc(plays[2], same)
		})
		require.NotEmpty(t, points[i], "%s has no points", sc.name)
		t.Logf("%s: %v", sc.name, points[i])
	}
	return points
}

// strike plays a job.
func (c *crew) strike(worker int, j job) outcome {
	random := rand.New(rand.NewPCG(j.seed, 1))
	var o outcome
	for o.tries < tries && !o.struck && o.failure == "" {
		f := newFault(j.point, j.kind, random)
		s := c.play(worker, j.scenario, f)
		o.tries++
		o.kind, o.struck, o.answered = j.kind, f.settle(), f.answered.Load()
		o.left, o.expired = s.left, s.expired
		if len(s.failures) > 0 {
			o.failure = fmt.Sprintf("%s, %v, round %d:\n%v", j.scenario.name, f, j.round, s.failures)
		}
	}
	if !o.struck && o.failure == "" {
		o.failure = fmt.Sprintf("%s, %v at %v: not met in %d plays", j.scenario.name, j.kind, j.point, tries)
	}
	return o
}

// play plays a scenario once, in time.
func (c *crew) play(worker int, sc scenario, f *fault) *stage {
	s := &stage{scenario: sc, world: c.world, peers: c.peers[worker], fault: f}
	done := make(chan struct{})
	go func() { // ends with the play; joined below
		defer close(done)
		s.run()
	}()
	limit := time.NewTimer(stuck)
	defer limit.Stop()
	select {
	case <-done:
		if len(s.failures) > 0 && s.proxy != nil {
			s.failures = append(s.failures, fmt.Sprintf("requests: %v", s.proxy.Requests()))
		}
	case <-limit.C:
		panic(fmt.Sprintf("stuck: %s, %v", sc.name, f)) // with every goroutine's stack
	}
	return s
}
