package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/slowdisk"
)

// The acts of this file are the hard ones. Each has a time without a leader.

const severity = `election_leader|lock_lost_total\{error_type="session_lost"|session_state|proof_age|lock_count`

// look is what an operator does first.
func (n *night) look(ctx context.Context) {
	n.show()
	n.zkr(ctx, "doctor")
	n.zkr(ctx, "ls", "-r", "/")
	n.metrics(ctx, severity)
}

// awaitLeader waits until a term begins after a moment, and prints who leads.
func (n *night) awaitLeader(ctx context.Context, since time.Time) error {
	for until := time.Now().Add(patience); ; pause(ctx, 100*time.Millisecond) {
		if w, at := n.latestTerm(); w != nil && at.After(since) {
			fmt.Printf("%s leads, %.1fs later\n", w.id, at.Sub(since).Seconds())
			return nil
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return errors.Join(errors.New("nobody leads"), ctx.Err())
		}
	}
}

// quorumLost stops two servers of three.
func (n *night) quorumLost(ctx context.Context) error {
	leader, err := n.servers.Leader(ctx)
	if err != nil {
		return err
	}
	first, second := (leader+1)%3, (leader+2)%3
	n.title("the quorum is lost: two of three servers are gone")
	for _, i := range []int{first, second} {
		if err := n.servers.Kill(ctx, i); err != nil {
			return err
		}
	}
	if err := n.awaitAlert(ctx, "ZkrecipesNoLeader"); err != nil {
		return err
	}
	n.look(ctx)
	n.title("they are started again")
	repairedAt := time.Now()
	for _, i := range []int{first, second} {
		if err := n.servers.StartNode(ctx, i); err != nil {
			return err
		}
	}
	if err := errors.Join(n.servers.WaitServing(ctx), n.awaitLeader(ctx, repairedAt)); err != nil {
		return err
	}
	n.show()
	return ctx.Err()
}

// slowDisk makes the fsyncs of the leader and of a follower, which are a majority, take half of a session.
func (n *night) slowDisk(ctx context.Context) error {
	leader, err := n.servers.Leader(ctx)
	if err != nil {
		return err
	}
	n.title("the disk of the leading server is slow, and a follower's on the same storage")
	for _, i := range []int{leader, (leader + 1) % 3} {
		if err := slowdisk.SlowOne(ctx, n.servers, i, sessionTimeout/2); err != nil {
			return err
		}
	}
	if err := n.awaitAlert(ctx, "ZkrecipesLeaseLost"); err != nil {
		return err
	}
	n.look(ctx)
	n.title("the disks are quick again")
	repairedAt := time.Now()
	if err := slowdisk.Slow(ctx, n.servers, 0); err != nil {
		return err
	}
	if err := errors.Join(n.servers.WaitServing(ctx), n.awaitLeader(ctx, repairedAt)); err != nil {
		return err
	}
	n.show()
	return ctx.Err()
}

// hungServer stops the server's process that leads, without closing a connection.
func (n *night) hungServer(ctx context.Context) error {
	leader, err := n.servers.Leader(ctx)
	if err != nil {
		return err
	}
	n.title("the leading server hangs: its connections stay, and nothing answers")
	for _, w := range n.workers {
		w.forget()
	}
	if err := n.servers.Pause(ctx, leader); err != nil {
		return err
	}
	pause(ctx, sessionTimeout/2)
	n.look(ctx)
	n.title("it goes on")
	if err := errors.Join(n.servers.Unpause(ctx, leader), n.servers.WaitServing(ctx)); err != nil {
		return err
	}
	n.show()
	return ctx.Err()
}

// workGoesOn stops a leader whose work heeds no context.
func (n *night) workGoesOn(ctx context.Context) error {
	n.title("report-1 is told to stop, and its work does not return; report-2 waits")
	var pair []*worker
	for _, id := range []string{"report-1", "report-2"} {
		w, err := n.startHang(ctx, id)
		if err != nil {
			return err
		}
		defer func() {
			_ = w.cmd.Process.Kill()
			_ = w.cmd.Wait()
		}()
		pair = append(pair, w)
		if err := w.await(ctx, "serving"); err != nil {
			return err
		}
		if id == "report-1" {
			if err := w.await(ctx, "leading"); err != nil {
				return err
			}
		}
	}
	others := n.workers
	n.workers = pair
	defer func() { n.workers = others }()
	if err := pair[0].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := pair[0].await(ctx, "work still running after its term ended"); err != nil {
		return err
	}
	n.show()
	n.zkr(ctx, "ls", hangPath)
	n.zkr(ctx, "who", hangPath)
	n.metrics(ctx, `election_leader|lock_count`)
	n.title("the operator kills report-1")
	killedAt := time.Now()
	if err := pair[0].cmd.Process.Kill(); err != nil {
		return err
	}
	if err := pair[1].await(ctx, "leading"); err != nil {
		return err
	}
	fmt.Printf("report-2 leads, %.1fs later\n", time.Since(killedAt).Seconds())
	n.workers = pair[1:]
	n.show()
	n.zkr(ctx, "ls", hangPath)
	n.metrics(ctx, `election_leader|lock_count`)
	return ctx.Err()
}

// startHang starts the program of hang, as a worker of its own.
func (n *night) startHang(ctx context.Context, id string) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{id: id, grown: make(chan struct{})}
	w.cmd = exec.CommandContext(ctx, self, "hang", id, strings.Join(n.servers.Servers(), ","))
	return w, w.start()
}

// restored restores the servers from a backup that is older than the clients' state.
func (n *night) restored(ctx context.Context) error {
	n.title("the servers are restored from a backup of the evening")
	for _, w := range n.workers {
		w.forget()
	}
	if err := n.servers.Restore(ctx, func(ctx context.Context) error {
		n.title("they are down for more than a session: all leases have ended; the stored tokens are reset")
		pause(ctx, sessionTimeout+time.Second)
		n.show()
		n.zkr(ctx, "doctor")
		return n.resetTokens(ctx)
	}); err != nil {
		return err
	}
	restoredAt := time.Now()
	n.title("they start with the backup")
	if err := errors.Join(n.servers.WaitServing(ctx), n.awaitLeader(ctx, restoredAt)); err != nil {
		return err
	}
	n.look(ctx)
	return ctx.Err()
}

// resetTokens follows docs/operations.md, because the transaction numbers of the servers restart.
func (n *night) resetTokens(ctx context.Context) error {
	const statement = "PRAGMA busy_timeout=5000; UPDATE worker_job SET token = 0"
	fmt.Println("$ sqlite3 worker.db 'UPDATE worker_job SET token = 0'")
	if out, err := exec.CommandContext(ctx, "sqlite3", filepath.Join(n.dir, "worker.db"), statement).CombinedOutput(); err != nil {
		return fmt.Errorf("sqlite3: %w: %s", err, out)
	}
	return nil
}
