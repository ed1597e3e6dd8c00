package mutex_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// workerVariable names the worker that this binary, run again as a separate process, is in place of a test.
const workerVariable = "ZKRECIPES_TEST_WORKER"

// workers are the bodies of those processes, by name.
var workers = map[string]func(ctx context.Context, args []string) error{
	"exclusion": workExclusively,
	"holder":    holdUntilTheEnd,
}

// workerLife bounds a worker whose test died.
const workerLife = 2 * time.Minute

func runWorker(name string) int {
	ctx, cancel := context.WithTimeout(context.Background(), workerLife)
	defer cancel()
	work, ok := workers[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "no worker %q\n", name)
		return 2
	}
	if err := work(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "worker %s: %v\n", name, err)
		return 1
	}
	return 0
}

// worker is the command that runs a worker in a separate process.
func worker(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), workerVariable+"="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// startWorker starts a worker, and returns a function that waits for its success.
func startWorker(t *testing.T, name string, args ...string) (wait func()) {
	t.Helper()
	cmd := worker(t, name, args...)
	require.NoError(t, cmd.Start())
	return func() {
		t.Helper()
		require.NoError(t, cmd.Wait())
	}
}
