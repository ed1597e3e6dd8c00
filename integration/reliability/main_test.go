// Package reliability_test takes leases on three servers through faults between servers. It shows when a lease has to
// end, when it has to survive, and what a stopped process learns when it resumes. CI runs the short form; the flags
// below give the figures of docs/evidence/reliability.md.
package reliability_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
)

var (
	rounds   = flag.Int("rounds", 3, "rounds of each kind of loss, for each session timeout; three are side by side")
	sessions = flag.String("sessions", "4s", "session timeouts of the rounds of loss")
	times    = flag.Int("times", 1, "how often each fault comes that a lease has to outlive; three leases are side by side")
	cutting  = flag.Duration("cutting", 15*time.Second, "how long the lines are cut again and again")
	cutOff   = flag.Int("cutoff", 3, "leases whose lines are cut")
	stopped  = flag.Int("stopped", 4, "processes that are stopped")
	seed     = flag.Uint64("seed", 0, "of the moments at which faults come; 0: another one each time")
)

const (
	// sideBySide is how many leases meet one fault of a server.
	sideBySide = 3
	// calm is the session timeout of leases that have to outlive a fault.
	calm = 12 * time.Second
	// patience bounds the wait for an expected event, beyond its own duration.
	patience = time.Minute
)

func TestMain(m *testing.M) {
	if work := os.Getenv(workerVariable); work != "" {
		os.Exit(runWorker(work))
	}
	// The tests mostly wait, but each starts three servers, and starting is hard work. The command line wins.
	_ = flag.Set("test.parallel", "3")
	goleak.VerifyTestMain(ensemble.Main(m))
}

// bounded ends with the test or some time after patience, whichever is first.
func bounded(t *testing.T, more time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+more)
	t.Cleanup(cancel)
	return ctx
}

// newRandom returns the test's source of random moments.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	t.Log("seed", from)
	return rand.New(rand.NewPCG(from, 0))
}

// upTo is a random time below limit.
func upTo(random *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(limit)))
}

// pass lets time pass, for a fault that lasts, or for a random moment.
func pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// dial returns a client whose session timeout the servers granted.
func dial(t *testing.T, timeout time.Duration, servers []string) *recipes.Client {
	t.Helper()
	client := testclient.Dial(t, servers, recipes.WithSessionTimeout(timeout))
	require.Equal(t, timeout, client.SessionTimeout(), "the server grants what was asked for")
	return client
}

// connectAt returns a client that knows all servers and is connected to one of them.
func connectAt(t *testing.T, e *ensemble.Ensemble, node int, timeout time.Duration) *recipes.Client {
	t.Helper()
	for t.Context().Err() == nil {
		client, err := recipes.Connect(bounded(t, 0), e.Servers(), recipes.WithSessionTimeout(timeout), recipes.WithConnectTimeout(patience))
		require.NoError(t, err)
		if client.Conn().Server() == e.Server(node) {
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			return client
		}
		require.NoError(t, client.Close())
	}
	require.Fail(t, "the test is over")
	return nil
}

// others are the servers but one.
func others(e *ensemble.Ensemble, node int) []string {
	return slices.Delete(e.Servers(), node, node+1)
}

// rounded is for people to read.
func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
