package election_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	killed        = 8 // processes
	killedTimeout = 2 * time.Second
)

// A killed process leaves its sessions to the server, which ends them within the session timeout and a tick. Then the
// followers lead.
func TestKilledProcess(t *testing.T) {
	var doomed []*leadingProcess
	for range killed { // their sessions are at different points of the server's clock
		doomed = append(doomed, newLeadingProcess(t))
	}
	for _, p := range doomed {
		p.killed = time.Now()
		require.NoError(t, p.cmd.Process.Kill())
	}
	var times []time.Duration
	for _, p := range doomed {
		_ = p.cmd.Wait() // returns the kill
		for i, follower := range p.followers {
			next := follower.lead(t)
			require.Greater(t, next.FencingToken(), p.tokens[i])
			times = append(times, next.at.Sub(p.killed))
		}
	}
	slices.Sort(times)
	t.Logf("%d kills, session timeout %v: the next leader after %v at least, median %v, at most %v",
		len(times), killedTimeout, times[0].Round(time.Millisecond), times[len(times)/2].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond))
	require.Less(t, times[0], killedTimeout+tick+slack)
	require.Less(t, times[len(times)-1], killedTimeout+tick+3*slack)
}

// leadingProcess is a process that leads an election of each recipe, with the followers in this process.
type leadingProcess struct {
	cmd       *exec.Cmd
	killed    time.Time
	tokens    []int64
	followers []*member
}

func newLeadingProcess(t *testing.T) *leadingProcess {
	t.Helper()
	path := testkit.Path(t)
	self, err := os.Executable()
	require.NoError(t, err)
	p := &leadingProcess{cmd: exec.CommandContext(t.Context(), self, ensemble.Shared(t).Server(0), path)}
	p.cmd.Env = append(os.Environ(), workerVariable+"=leader")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	lines := bufio.NewScanner(out)
	for _, r := range both {
		require.True(t, lines.Scan(), "the process leads")
		var token int64
		_, err := fmt.Sscan(lines.Text(), &token)
		require.NoError(t, err)
		p.tokens = append(p.tokens, token)
		p.followers = append(p.followers, r.enter(t, direct(t), path+"/"+r.name, "follower"))
		testkit.Eventually(t, func() bool { return len(children(t, observer(t), path+"/"+r.name)) == 2 }, "the follower")
	}
	return p
}

const (
	// workerVariable makes this binary, run again, the process that will be killed.
	workerVariable = "ZKRECIPES_TEST_WORKER"
	// workerLife bounds a process whose test died.
	workerLife = 2 * time.Minute
)

// runWorker leads until the end of the process, and writes the tokens of the terms.
func runWorker() int {
	ctx, cancel := context.WithTimeout(context.Background(), workerLife)
	defer cancel()
	work := leadAll
	if os.Getenv(workerVariable) == spreadWork {
		work = spreadUntilKilled
	}
	if err := work(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}

func leadAll(ctx context.Context, server, path string) error {
	client, err := recipes.Connect(ctx, []string{server}, recipes.WithSessionTimeout(killedTimeout))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	for _, r := range both {
		leads := make(chan struct{})
		p, err := r.create(client, path+"/"+r.name, "leader", func(term *recipes.Lease) {
			fmt.Fprintln(os.Stdout, term.FencingToken())
			close(leads)
			<-term.Context().Done()
		})
		if err != nil {
			return err
		}
		if err := p.Start(); err != nil {
			return err
		}
		select {
		case <-leads:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	<-ctx.Done()
	return ctx.Err()
}
