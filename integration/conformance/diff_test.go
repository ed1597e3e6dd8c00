package conformance_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conformance"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

var (
	seed     = flag.Uint64("seed", 0, "seed of the first random run; 0 takes one by chance")
	requests = flag.Int("requests", 100_000, "requests of all random runs together")
)

// perRun is how many requests a random run makes: few enough to read what led to a
// difference, and to find a shorter way to it.
const perRun = 5000

func firstSeed(t *testing.T) uint64 {
	t.Helper()
	first := *seed
	if first == 0 {
		first = uint64(rand.Uint32())
	}
	t.Logf("seed %d", first)
	return first
}

// zktest answers every request like a real server.
func TestRandomRequestsToZktestAndARealServer(t *testing.T) {
	first := firstSeed(t)
	server, fake := start(t, conformance.Extended), startFake(t)
	began := time.Now()
	played := testkit.Shorter(*requests, *requests/5)
	for i := range played / perRun {
		seed := first + uint64(i)
		err := conformance.Diff(server, fake, seed, perRun)
		if difference, ok := errors.AsType[*conformance.DiffError](err); ok {
			t.Log(difference)
			shorter := conformance.Shrink(server, fake, difference, 200)
			t.Fatalf("go test -run %s -seed %d\n%s", t.Name(), seed, shorter.Script())
		}
		require.NoError(t, err, "seed %d", seed)
	}
	t.Logf("%d requests in %v", played, time.Since(began).Round(time.Second))
}

// startFake starts a zktest with the limits of the real server.
func startFake(t *testing.T) conformance.Dial {
	t.Helper()
	return dial(zktest.NewServer(t, zktest.WithSessionTimeouts(time.Second, time.Minute), zktest.WithReapInterval(24*time.Hour),
		zktest.WithTTLNodes()).Addr())
}
