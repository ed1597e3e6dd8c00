package election_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/spread"
)

const (
	shards     = 12
	spreadWork = "spread" // of workerVariable
)

// joinSpread takes part in all shards, spread over the processes.
func joinSpread(client *recipes.Client, path, id string) (balance *spread.Spread, all []*latch.LeaderLatch, err error) {
	if balance, err = spread.New(client, path+"/spread", spread.WithID(id)); err != nil {
		return nil, nil, err
	}
	for n := range shards {
		l, err := latch.New(client, fmt.Sprint(path, "/", n), latch.WithID(id), latch.WithPriority(0))
		if err != nil {
			return nil, nil, err
		}
		if _, err = balance.Add(l); err != nil {
			return nil, nil, err
		}
		if err = l.Start(); err != nil {
			return nil, nil, err
		}
		all = append(all, l)
	}
	return balance, all, balance.Start()
}

// A process stopped right after its start leads nothing meanwhile, and costs no shard its leader. Once it runs, it leads its
// share.
func TestSpreadWithAStoppedProcess(t *testing.T) {
	path := testkit.Path(t)
	var all []*latch.LeaderLatch
	led := func() (n int) {
		for _, l := range all {
			if l.HasLeadership() {
				n++
			}
		}
		return n
	}
	leads := func(id string, want int) func() bool {
		return func() bool {
			n := 0
			for _, l := range all[:shards] {
				if leader, err := l.Leader(t.Context()); err == nil && leader.ID == id {
					n++
				}
			}
			return n == want
		}
	}
	var first *spread.Spread
	for i := range 3 {
		balance, latches, err := joinSpread(direct(t), path, fmt.Sprint(i))
		require.NoError(t, err)
		all = append(all, latches...)
		if i == 0 {
			first = balance
		}
	}
	for i := range 3 {
		testkit.Eventually(t, leads(fmt.Sprint(i), shards/3), "a share each")
	}

	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, ensemble.Shared(t).Server(0), path)
	cmd.Env = append(os.Environ(), workerVariable+"="+spreadWork)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.True(t, bufio.NewScanner(out).Scan(), "the process has started")
	<-time.After(30 * time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	for began := time.Now(); time.Since(began) < 3*sessionTimeout; <-time.After(100 * time.Millisecond) {
		require.Equal(t, shards, led(), "after %v", time.Since(began))
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	testkit.Eventually(t, leads("worker", shards/4), "the share of the process")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // returns the kill
	testkit.Eventually(t, func() bool { return led() == shards }, "a leader each")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, first.Drain(ctx))
	testkit.Eventually(t, leads("0", 0), "nothing left")
	require.Equal(t, shards, led())
}

// spreadUntilKilled is the process of TestSpreadWithAStoppedProcess.
func spreadUntilKilled(ctx context.Context, server, path string) error {
	client, err := recipes.Connect(ctx, []string{server}, recipes.WithSessionTimeout(sessionTimeout))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if _, _, err = joinSpread(client, path, "worker"); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "started")
	<-ctx.Done()
	return nil
}
