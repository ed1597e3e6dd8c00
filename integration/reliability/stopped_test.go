package reliability_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

const (
	stoppedTimeout = 4 * time.Second // of the sessions of processes that are stopped
	stopLasts      = 3 * stoppedTimeout
	// hesitation bounds the delay of the end of the lease's context, compared with a context of Go's own.
	hesitation = 250 * time.Millisecond
)

// TestStoppedProcess stops a process for three session timeouts. It resumes and still trusts its lock. TrustedUntil is past
// at once, the lease's context ends as soon as a context of Go's own with a deadline does, the guarded store refuses the
// write, Release returns the loss, and nothing is left.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	e := ensemble.New(t, quick)
	ctx := bounded(t, 5*stopLasts)
	var all []*stoppable
	for i := range *stopped {
		p := newStoppable(t, e, 1+i%2) // every second one has one processor
		p.cutOff = i/2%2 == 0
		all = append(all, p)
	}
	for _, p := range all {
		p.say(t, "be busy")
		require.Equal(t, "busy", p.hear(t))
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
		if p.cutOff {
			p.eachLine((*faultproxy.Proxy).Hold)
		}
	}
	began := time.Now()
	for _, p := range all {
		p.next = granted(ctx, t, p.done).lease
		require.True(t, p.store.write(p.next.FencingToken()))
	}
	pass(ctx, stopLasts-time.Since(began))
	var believed, noticed time.Duration // at most
	for _, p := range all {             // one after another: each has the machine for itself
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
		found := p.report(t)
		t.Logf("processors %d, cut off %v, stopped %v: believed for %v, deadline of Go's own noticed after %v",
			p.processors, p.cutOff, rounded(found.Stopped), found.Believed.Round(time.Microsecond), found.Deadline.Round(time.Microsecond))
		believed, noticed = max(believed, found.Believed), max(noticed, found.Deadline)
		require.GreaterOrEqual(t, found.Stopped, stopLasts-time.Second)
		require.False(t, found.Trusted, "TrustedUntil is past")
		require.Less(t, found.Believed, found.Deadline+hesitation)
		require.Equal(t, "refused", found.Write)
		require.Equal(t, recipes.ErrSessionLost.Error(), found.Cause)
		require.Equal(t, recipes.ErrSessionLost.Error(), found.Release)
		require.NoError(t, p.next.Context().Err(), "the late release is none of the next holder's")
		require.NoError(t, p.next.Release())
		p.empty(ctx, t)
	}
	t.Logf("%d processes: believed for %v at most, deadline of Go's own noticed after %v at most, every write refused",
		len(all), believed.Round(time.Microsecond), noticed.Round(time.Microsecond))
}

// stoppable is a process that holds a lock, and its waiter in this process.
type stoppable struct {
	processors int
	path       string
	token      int64
	lines      []*faultproxy.Proxy
	cutOff     bool // it resumes without a connection, with only its clock
	cmd        *exec.Cmd
	in         io.WriteCloser
	out        *bufio.Scanner
	store      guarded
	waiter     *mutex.InterProcessMutex
	done       <-chan grant
	next       *recipes.Lease
}

func newStoppable(t *testing.T, e *ensemble.Ensemble, processors int) *stoppable {
	t.Helper()
	p := startWorker(t, workOn, stoppedTimeout, processors, e.Servers())
	require.True(t, p.store.write(p.token), "the holder writes first")
	p.await(t, e.Servers())
	return p
}

// startWorker starts a process that holds a lock, behind its own lines to these servers.
func startWorker(t *testing.T, work string, timeout time.Duration, processors int, servers []string) *stoppable {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &stoppable{processors: processors, path: testkit.Path(t)}
	args := []string{timeout.String(), p.path}
	for _, server := range servers {
		line := faultproxy.New(t, server)
		p.lines, args = append(p.lines, line), append(args, line.Addr())
	}
	p.cmd = exec.CommandContext(t.Context(), self, args...)
	p.cmd.Env = append(os.Environ(), workerVariable+"="+work, fmt.Sprintf("GOMAXPROCS=%d", processors))
	p.cmd.Stderr = os.Stderr
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	p.out = bufio.NewScanner(out)
	p.token, err = strconv.ParseInt(p.hear(t), 10, 64)
	require.NoError(t, err)
	return p
}

// await starts a waiter in this process for the process's lock.
func (p *stoppable) await(t *testing.T, servers []string) {
	t.Helper()
	var err error
	p.waiter, err = mutex.New(dial(t, calm, servers), p.path)
	require.NoError(t, err)
	p.done = acquireAfter(t.Context(), p.waiter, 0)
	testkit.Eventually(t, func() bool {
		queue, err := p.waiter.Participants(t.Context())
		return err == nil && len(queue) == 2
	}, "the waiter's znode")
}

func (p *stoppable) say(t *testing.T, line string) {
	t.Helper()
	_, err := fmt.Fprintln(p.in, line)
	require.NoError(t, err)
}

func (p *stoppable) hear(t *testing.T) string {
	t.Helper()
	require.True(t, p.out.Scan(), "the process says something")
	return p.out.Text()
}

// report accepts the write of a resumed process, and returns its findings.
func (p *stoppable) report(t *testing.T) awakening {
	t.Helper()
	token, err := strconv.ParseInt(p.hear(t), 10, 64)
	require.NoError(t, err)
	answer := "refused"
	if p.store.write(token) {
		answer = "accepted"
	}
	p.say(t, answer)
	var found awakening
	require.NoError(t, json.Unmarshal([]byte(p.hear(t)), &found))
	p.eachLine((*faultproxy.Proxy).Release)
	require.NoError(t, p.cmd.Wait())
	return found
}

// empty waits until no client holds or awaits the lock.
func (p *stoppable) empty(ctx context.Context, t *testing.T) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		queue, err := p.waiter.Participants(ctx)
		return err == nil && len(queue) == 0
	}, "nothing is left")
}

func (p *stoppable) eachLine(do func(*faultproxy.Proxy)) {
	for _, line := range p.lines {
		do(line)
	}
}

// guarded is a store that refuses writes with a lower token than an earlier one.
type guarded struct{ highest int64 }

func (g *guarded) write(token int64) bool {
	if token < g.highest {
		return false
	}
	g.highest = token
	return true
}
