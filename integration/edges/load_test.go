package edges_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

var minutes = flag.Float64("minutes", 1./3, "how long TestMixedLoad lasts")

const (
	loadClients  = 4
	loadSamples  = 60 // in all, but no more than one every shortestRest
	leastSamples = 4
	shortestRest = 1500 * time.Millisecond // between two samples
)

// Everything that the recipes do, on four clients whose lines are cut and whose
// sessions expire, leaves heap, goroutines, sockets and server watches as they were.
func TestMixedLoad(t *testing.T) {
	server := alone(t, fmt.Sprintf("-minutes=%g", *minutes))
	if server == "" {
		return
	}
	l := startLoad(t, server)
	length := time.Duration(*minutes * float64(time.Minute))
	every := max(length/loadSamples, shortestRest)
	began := time.Now()
	var samples []sample
	tick := time.NewTicker(every)
	defer tick.Stop()
	for len(samples) < leastSamples || time.Since(began) < length { // a rest may take long
		<-tick.C
		samples = append(samples, l.rest(began))
		t.Log(samples[len(samples)-1])
	}
	l.end()
	t.Logf("seed %d, %v: %s", l.seed, time.Since(began).Round(time.Second), l.done())
	for name, count := range l.counts {
		require.Positive(t, count.Load(), "%s: the load is not mixed", name)
	}
	flat(t, samples)
}

// sample has the resources while the load rests.
type sample struct {
	at      time.Duration
	has     footprint
	watches int
	ops     int64
}

func (s sample) String() string {
	return fmt.Sprintf("%8v %8d operations, at rest: heap %7.1f KiB, %d goroutines, %d sockets, %d server watches",
		s.at.Round(time.Second), s.ops, float64(s.has.heap)/1024, s.has.goroutines, s.has.sockets, s.watches)
}

// flat compares the last third of the samples with the first, but for the very first
// sample, before which everything is used for the first time.
func flat(t *testing.T, samples []sample) {
	t.Helper()
	require.GreaterOrEqual(t, len(samples), leastSamples)
	samples = samples[1:]
	third := max(len(samples)/3, 1)
	median := func(of []sample, value func(sample) int) int {
		values := make([]int, len(of))
		for i, s := range of {
			values[i] = value(s)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	heap := func(s sample) int { return s.has.heap }
	first, last := median(samples[:third], heap), median(samples[len(samples)-third:], heap)
	t.Logf("heap at rest: %.1f KiB in the first third, %.1f KiB in the last", float64(first)/1024, float64(last)/1024)
	require.Less(t, last-first, 128<<10, "the heap grows")
	for name, value := range map[string]func(sample) int{
		"goroutines": func(s sample) int { return s.has.goroutines },
		"sockets":    func(s sample) int { return s.has.sockets },
	} {
		for _, s := range samples {
			require.LessOrEqual(t, value(s), value(samples[0]), "%s, after %v", name, s.at)
		}
	}
}

// load is everything at once.
type load struct {
	t       *testing.T
	server  string
	root    string
	seed    uint64
	ctx     context.Context
	cancel  context.CancelFunc
	proxy   *faultproxy.Proxy
	clients []*recipes.Client // their lines are cut, their sessions expire
	holder  *recipes.Lease    // held for as long as the load lasts
	workers sync.WaitGroup
	gate    sync.RWMutex // read-locked for an operation of a worker; write-locked for a sample
	counts  map[string]*atomic.Int64
	steady  footprint // of the latest rest
}

func startLoad(t *testing.T, server string) *load {
	t.Helper()
	l := &load{t: t, server: server, root: testkit.Path(t), seed: rand.Uint64(), counts: map[string]*atomic.Int64{}}
	l.ctx, l.cancel = context.WithCancel(t.Context())
	t.Cleanup(l.end)
	l.proxy = faultproxy.New(t, server)
	for range loadClients {
		l.clients = append(l.clients, connect(t, l.proxy.Addr()))
	}
	l.holder = acquire(t, newMutex(t, connect(t, server), l.root+"/held"))
	kinds := l.kinds()
	for _, worker := range kinds {
		l.counts[worker.counts] = new(atomic.Int64)
	}
	for kind, worker := range kinds {
		for n := range worker.many {
			random := rand.New(rand.NewPCG(l.seed, uint64(len(kind)<<8+n)))
			l.workers.Go(func() { // ends with l.ctx; joined in end
				for l.ctx.Err() == nil {
					l.step(kind, worker, random)
				}
			})
		}
	}
	return l
}

// step is one operation of a worker, and its pause.
func (l *load) step(kind string, w worker, random *rand.Rand) {
	l.gate.RLock()
	err := w.work(random)
	l.gate.RUnlock()
	switch {
	case err == nil:
		l.counts[w.counts].Add(1)
	case l.ctx.Err() == nil && !expected(err):
		l.t.Errorf("%s: %v", kind, err)
	}
	pause := time.NewTimer(time.Duration((0.5 + random.Float64()) * float64(w.pause)))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-l.ctx.Done():
	}
}

// expected has the errors of calls that are interrupted by a cut connection or an expired session.
func expected(err error) bool {
	for _, target := range []error{
		context.DeadlineExceeded, recipes.ErrSessionLost, recipes.ErrNotAcquired, recipes.ErrNodeDeleted,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// rest stops the load, waits until nothing is under way, and looks.
func (l *load) rest(began time.Time) sample {
	l.gate.Lock()
	defer l.gate.Unlock()
	s := sample{at: time.Since(began), ops: l.sum()}
	quiet := func() bool {
		for _, client := range l.clients {
			if client.State() != recipes.Connected {
				return false
			}
		}
		s.watches = watches(l.t, l.server, l.root)
		s.has = weigh(l.t)
		// A watch can't be removed. So the holder's own znode has its watch, and one per client, for any number of
		// former waiters.
		return s.watches <= 1+loadClients && (l.steady.goroutines == 0 || s.has.goroutines <= l.steady.goroutines && s.has.sockets <= l.steady.sockets)
	}
	deadline := time.Now().Add(patience)
	for !quiet() {
		if time.Now().After(deadline) {
			l.t.Logf("%s", stacks())
			require.Failf(l.t, "the load does not come to rest", "%v; at the rest before: %+v", s, l.steady)
		}
		<-time.After(20 * time.Millisecond)
	}
	l.steady = s.has // never more than before: a closed connection may linger in the first rest
	return s
}

func (l *load) end() {
	l.cancel()
	l.workers.Wait()
}

func (l *load) sum() (sum int64) {
	for _, count := range l.counts {
		sum += count.Load()
	}
	return sum
}

func (l *load) done() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(l.counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, l.counts[name].Load()))
	}
	return strings.Join(parts, ", ")
}
