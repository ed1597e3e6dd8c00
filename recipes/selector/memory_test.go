package selector_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// raced is set where the race detector is, which makes stacks twice as large.
var raced bool

// serveMode makes this program a server instead of a test, for those that must not have
// the server's memory in theirs.
const serveMode = "ZKRECIPES_TEST_SERVE"

// serve serves until its standard input ends.
func serve() {
	srv, err := zktest.Start()
	if err != nil {
		panic(err)
	}
	fmt.Println(srv.Addr())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	_ = srv.Close()
}

// served returns the address of a server in another process.
func served(t *testing.T) string {
	t.Helper()
	server := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	server.Env = append(os.Environ(), serveMode+"=1")
	stdin, err := server.StdinPipe()
	require.NoError(t, err)
	stdout, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		require.NoError(t, stdin.Close())
		require.NoError(t, server.Wait())
	})
	address, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(address)
}

// The figure differs from run to run by a hundred bytes or more, because the Go runtime takes the
// memory of stacks in spans of 32 KiB, and those that are used in part count in whole: one span
// is 32 bytes for each participant.
func TestMemoryOfAWaitingParticipant(t *testing.T) {
	n := testkit.Shorter(1000, 300)
	client, err := recipes.Connect(t.Context(), []string{served(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	leader := create(t, client, idle)
	require.NoError(t, leader.Start())
	require.Eventually(t, leader.HasLeadership, 30*time.Second, time.Millisecond)

	before, goroutines := inUse(), runtime.NumGoroutine()
	crowd := make([]*selector.LeaderSelector, n)
	for i := range crowd {
		crowd[i] = create(t, client, idle)
		require.NoError(t, crowd[i].Start())
	}
	require.Eventually(t, func() bool {
		queue, err := leader.Participants(t.Context())
		return err == nil && len(queue) == n+1 && runtime.NumGoroutine() <= goroutines+n+1 // this function's
	}, 30*time.Second, 100*time.Millisecond)
	each := (inUse() - before) / n
	runtime.KeepAlive(crowd)
	t.Logf("%d bytes of heap and stack for each of %d waiting participants", each, n)
	if raced {
		each /= 2
	}
	require.Less(t, each, 8<<10)
}

// inUse is the memory of what is alive, and of all stacks.
func inUse() int {
	var stats runtime.MemStats
	for range 3 { // what one collection frees, the next one may return
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc + stats.StackInuse)
}
