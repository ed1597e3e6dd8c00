package mutex_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// A process that was stopped for longer than its session learns after it resumes that the session is over, in any
// order of the events on its socket: the server reports the znode's deletion before it hangs up. The next holder's
// token is higher.
func TestPausedHolder(t *testing.T) {
	const holders = 8 // side by side, because the first event of each is a race
	var all []*pausedHolder
	for range holders {
		all = append(all, newPausedHolder(t))
	}
	for _, paused := range all {
		require.NoError(t, paused.cmd.Process.Signal(syscall.SIGSTOP))
	}
	for _, paused := range all {
		paused.next = acquire(t, newMutex(t, direct(t), paused.path)) // waits for the expiry
		require.Greater(t, paused.next.FencingToken(), paused.token)
	}
	for _, paused := range all {
		require.NoError(t, paused.cmd.Process.Signal(syscall.SIGCONT))
	}
	for _, paused := range all {
		var told []string
		for paused.lines.Scan() {
			told = append(told, paused.lines.Text())
		}
		require.NoError(t, paused.cmd.Wait())
		require.Equal(t, []string{"trusted: false", "cause: " + recipes.ErrSessionLost.Error(), "release: " + recipes.ErrSessionLost.Error()}, told)
		require.NoError(t, paused.next.Context().Err(), "the late release is none of the next holder's")
		require.NoError(t, paused.next.Release())
	}
}

// pausedHolder is a process that holds a lock.
type pausedHolder struct {
	path  string
	cmd   *exec.Cmd
	lines *bufio.Scanner // its output
	token int64
	next  *recipes.Lease // of who got the lock meanwhile
}

func newPausedHolder(t *testing.T) *pausedHolder {
	t.Helper()
	p := &pausedHolder{path: testkit.Path(t)}
	p.cmd = worker(t, "holder", ensemble.Shared(t).Server(0), p.path)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	p.lines = bufio.NewScanner(out)
	require.True(t, p.lines.Scan(), "the worker holds the lock")
	p.token, err = strconv.ParseInt(p.lines.Text(), 10, 64)
	require.NoError(t, err)
	return p
}

// holdUntilTheEnd holds the lock, and says how that ended.
func holdUntilTheEnd(ctx context.Context, args []string) error {
	client, err := recipes.Connect(ctx, args[:1], recipes.WithSessionTimeout(sessionTimeout/2))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	m, err := mutex.New(client, args[1])
	if err != nil {
		return err
	}
	lease, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, lease.FencingToken())
	select {
	case <-lease.Context().Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	fmt.Fprintln(os.Stdout, "trusted:", time.Now().Before(lease.TrustedUntil()))
	fmt.Fprintln(os.Stdout, "cause:", context.Cause(lease.Context()))
	var failed *recipes.OpError
	if err := lease.Release(); !errors.As(err, &failed) {
		return fmt.Errorf("release after a loss: %w", err)
	}
	fmt.Fprintln(os.Stdout, "release:", strings.TrimSpace(failed.Err.Error()))
	return nil
}
