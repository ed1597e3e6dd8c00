package selector_test

import (
	"bufio"
	"bytes"
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
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// serveMode makes this program a server instead of a test, for tests that must not measure the server's memory.
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

// Many participants take part because the figure differs from run to run: constant costs of the runtime, such as
// partly used 32 KiB spans for stacks, are divided by their number. 8 KiB of the figure are the stack.
func TestMemoryOfAWaitingParticipant(t *testing.T) {
	paths := testkit.Shorter(8, 4)
	const perElection = 375 // at most 500 of one client wait with a znode for one election
	n := paths * perElection
	client, err := recipes.Connect(t.Context(), []string{served(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	stand := func(number int) *selector.LeaderSelector {
		s, err := selector.New(client, fmt.Sprintf("%s-%d", elections.Path, number), elections.Idle)
		require.NoError(t, err)
		require.NoError(t, s.Start())
		return s
	}
	leaders := make([]*selector.LeaderSelector, paths)
	for i := range leaders {
		leaders[i] = stand(i)
		require.Eventually(t, leaders[i].HasLeadership, 30*time.Second, time.Millisecond)
	}

	require.Eventually(t, func() bool { // a leader begins to follow its znode a moment after the grant
		stacks := make([]byte, 1<<20)
		return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte(".followOwnNode(")) == paths
	}, 30*time.Second, time.Millisecond)
	before, goroutines := inUse(), runtime.NumGoroutine()
	crowd := make([]*selector.LeaderSelector, n)
	for i := range crowd {
		crowd[i] = stand(i % paths)
	}
	for _, leader := range leaders {
		require.Eventually(t, func() bool {
			queue, err := leader.Participants(t.Context())
			return err == nil && len(queue) == perElection+1 && runtime.NumGoroutine() <= goroutines+n+1 // this function's
		}, 30*time.Second, 100*time.Millisecond)
	}
	each := (inUse() - before) / n
	runtime.KeepAlive(crowd)
	t.Logf("%d bytes of heap and stack for each of %d waiting participants", each, n)
	if testkit.IsRaced {
		each /= 2
	}
	require.Less(t, each, 13<<10)
}

// inUse is the memory of what is alive, and of all stacks.
func inUse() int {
	var stats runtime.MemStats
	for range 3 { // memory freed by one collection may be returned by the next
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc + stats.StackInuse)
}
