package edges_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// aloneVariable marks the separate process of a test, and holds the server's address.
const aloneVariable = "ZKRECIPES_TEST_ALONE"

// alone runs a test that counts resources of its process (heap, goroutines, sockets) in a separate process, beside
// the other tests, and returns "" when that test passed. In the separate process it returns the server's address.
func alone(t *testing.T, args ...string) (server string) {
	t.Helper()
	if server := os.Getenv(aloneVariable); server != "" {
		return server
	}
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	args = append([]string{"-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=0"}, args...)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), aloneVariable+"="+shared(t))
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	require.NoError(t, cmd.Run())
	return ""
}

// footprint has the resources of a process that must not grow.
type footprint struct {
	heap       int // bytes that are reachable
	goroutines int
	sockets    int
}

// weigh collects garbage twice, because memory freed by one collection may be returned by the next, and then
// measures.
func weigh(t *testing.T) footprint {
	t.Helper()
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return footprint{heap: int(stats.HeapAlloc), goroutines: runtime.NumGoroutine(), sockets: sockets(t)}
}

// sockets counts the open sockets of the process.
func sockets(t *testing.T) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	count := 0
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, "socket:") {
			count++
		}
	}
	return count
}

// stacks are those of all goroutines, for a failure's message.
func stacks() string {
	text := make([]byte, 1<<20)
	return string(text[:runtime.Stack(text, true)])
}
