package edges_test

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// A client with 50,000 waiters and a full session is closed. The ensemble keeps serving, and can restart. The session has
// exactly as many bytes of ephemeral paths as allowed.
func TestCrowdedClientIsClosed(t *testing.T) {
	t.Parallel()
	const waiters, limit, path = 50_000, 512 << 10, "/locks/of-one-client"
	e := ensemble.New(t, ensemble.Config{Nodes: 3})
	program := filepath.Join(t.TempDir(), "crowd")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./crowd").CombinedOutput()
	require.NoError(t, err, "%s", out)
	crowd := exec.CommandContext(t.Context(), program, strings.Join(e.Servers(), ","), path, strconv.Itoa(waiters))
	crowd.Stderr = t.Output()
	input, err := crowd.StdinPipe()
	require.NoError(t, err)
	output, err := crowd.StdoutPipe()
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, crowd.Start())
	lines := bufio.NewReader(output)
	held := number(t, lines)
	t.Logf("full with %d locks after %v", held, time.Since(began))

	client := testClient(t, e)
	bytes, inQueue := ephemeralBytes(t, client.Conn(), path)
	t.Logf("%d bytes, %d contenders on one path", bytes, inQueue)
	require.LessOrEqual(t, bytes, limit)
	require.Greater(t, bytes, limit-100, "full")
	require.LessOrEqual(t, inQueue, 501)

	closing := time.Now()
	require.NoError(t, input.Close())
	require.Equal(t, waiters, number(t, lines), "waiters that were told")
	require.NoError(t, crowd.Wait())
	t.Logf("closed in %v", time.Since(closing))
	lease := acquire(t, newMutex(t, client, path+"/crowd"))
	bytes, _ = ephemeralBytes(t, client.Conn(), path)
	require.Equal(t, len(lease.Path())+4, bytes, "all others have gone")
	require.NoError(t, lease.Release())

	ctx := testkit.Context(t)
	for i := range 3 {
		require.NoError(t, e.Kill(ctx, i))
	}
	var starts sync.WaitGroup
	for i := range 3 {
		starts.Go(func() { // joined below
			if err := e.StartNode(ctx, i); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	require.NoError(t, e.WaitServing(ctx))
	again := acquire(t, newMutex(t, testClient(t, e), path+"/crowd"))
	require.Greater(t, again.FencingToken(), lease.FencingToken())
	require.NoError(t, again.Release())
}

// testClient is a client of all servers.
func testClient(t *testing.T, e *ensemble.Ensemble) *recipes.Client {
	t.Helper()
	client, err := recipes.Connect(t.Context(), e.Servers(), recipes.WithSessionTimeout(sessionTimeout), recipes.WithConnectTimeout(patience))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// number reads a line with a number.
func number(t *testing.T, lines *bufio.Reader) int {
	t.Helper()
	line, err := lines.ReadString('\n')
	if !errors.Is(err, io.EOF) {
		require.NoError(t, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	return n
}

// ephemeralBytes is what the contenders in all directories below path cost: their paths, and four bytes for each. inQueue is how many
// are in the largest directory.
func ephemeralBytes(t *testing.T, conn *zk.Conn, path string) (bytes, inQueue int) {
	t.Helper()
	dirs := children(t, conn, path)
	var mu sync.Mutex // protects bytes and inQueue
	slots := make(chan struct{}, 16)
	var readers sync.WaitGroup
	for _, dir := range dirs {
		slots <- struct{}{}
		readers.Go(func() { // joined below
			defer func() { <-slots }()
			contenders := children(t, conn, path+"/"+dir)
			mu.Lock()
			defer mu.Unlock()
			inQueue = max(inQueue, len(contenders))
			for _, child := range contenders {
				bytes += len(path+"/"+dir+"/"+child) + 4
			}
		})
	}
	readers.Wait()
	return bytes, inQueue
}

// children lists a directory, on another connection after a disconnect: on a busy machine, a server that deletes thousands of
// znodes may not answer its leader in time. A reaped container has no children.
func children(t *testing.T, conn *zk.Conn, path string) (names []string) {
	t.Helper()
	for ctx := testkit.Context(t); ; zkutil.Pause(ctx, 10*time.Millisecond) {
		names, _, err := conn.Children(path)
		switch {
		case err == nil, errors.Is(err, zk.ErrNoNode):
			return names
		case !errors.Is(err, zk.ErrConnectionClosed), ctx.Err() != nil:
			t.Error(err)
			return nil
		}
	}
}
