package ensemble

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// New is Start for a test: a failure to start is fatal, and the servers are removed at the test's end.
func New(tb testing.TB, cfg Config) *Ensemble {
	tb.Helper()
	e, err := Start(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

var shared struct {
	mu       sync.Mutex
	ensemble *Ensemble
}

// Shared returns the test binary's common node, started by the first call. Tests share its data, so each works below
// its own path, and none injects faults. The package's TestMain must use Main, which removes the node.
func Shared(tb testing.TB) *Ensemble {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.ensemble == nil {
		// Not the test's context, because the node outlives the test.
		e, err := Start(context.Background(), Config{})
		if err != nil {
			tb.Fatal(err)
		}
		shared.ensemble = e
	}
	return shared.ensemble
}

// Runner runs a package's tests and then removes the Shared node.
type Runner struct{ m *testing.M }

// Main returns a Runner for TestMain: os.Exit(ensemble.Main(m).Run()) or goleak.VerifyTestMain(ensemble.Main(m)).
func Main(m *testing.M) Runner { return Runner{m} }

// Run runs the tests and returns the status to exit with.
func (r Runner) Run() int {
	status := r.m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.ensemble == nil {
		return status
	}
	if err := shared.ensemble.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = max(status, 1)
	}
	shared.ensemble = nil
	return status
}
