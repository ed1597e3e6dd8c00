package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// lockFlags are those of the command lock.
type lockFlags struct {
	job

	isShared bool
	isWrite  bool
	permits  int
	atLeast  time.Duration // from the acquisition
}

func newLock(g *globals) *cobra.Command {
	f := lockFlags{job: job{globals: g}}
	c := &cobra.Command{
		Use:   "lock [flags] PATH -- CMD [ARG…]",
		Short: "Run a command while holding a lock",
		Long: `Waits for the lock at PATH, runs CMD in a process group of its own while holding it, and exits
with its code. The group never outlives the lock: SIGTERM comes the grace before the lock can pass to
another, SIGKILL at that time. CMD finds ZKR_LOCK_PATH, ZKR_LOCK_ZNODE and ZKR_FENCING_TOKEN in its
environment. On a terminal a wait says who is ahead. With --at-least the lock is also held after CMD for the
rest of that time, so that hosts whose clocks are late find it held.`,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.define(c)
	flags := c.Flags()
	flags.BoolVar(&f.isShared, "shared", false, "take the read side of a read-write lock")
	flags.BoolVar(&f.isWrite, "write", false, "take the write side of a read-write lock")
	durationVar(flags, &f.atLeast, "at-least", "", 0, "hold the lock for at least this time, also if CMD ends before; a signal or a revocation ends it")
	flags.IntVar(&f.permits, "permits", 0, "take one of this many permits of a semaphore")
	return c
}

func (f *lockFlags) run(c *cobra.Command, args []string) error {
	if err := f.parse(c, args); err != nil {
		return err
	}
	if c.Flags().Changed("permits") && f.permits < 1 {
		return exit.Errorf(exit.Usage, "--permits: %d is not a number of permits", f.permits)
	}
	if c.Flags().Changed("at-least") && f.atLeast <= 0 {
		return exit.Errorf(exit.Usage, "--at-least: %v is not a time to hold", f.atLeast)
	}
	m, err := newMode(f.isShared, f.isWrite, f.permits)
	if err != nil {
		return err
	}
	if err := f.prepare(); err != nil {
		return err
	}
	return f.lockAndRun(m)
}

func (f *lockFlags) lockAndRun(m mode) error {
	signals := guard.NewSignals()
	waiting, stopWaiting := signals.EndWait(context.Background())
	defer stopWaiting()
	bounded, stopBound := f.bound(waiting)
	defer stopBound()
	client, err := f.connectShown(bounded)
	if err != nil {
		return orSignal(waiting, err)
	}
	defer closeClient(client)
	lease, err := f.acquire(bounded, client, m)
	if err != nil {
		return orSignal(waiting, err)
	}
	signals.ForChild()
	stopWaiting()
	if err := orSignal(waiting, context.Cause(waiting)); exit.IsSilent(err) { // the signal arrived with the lock
		return err
	}
	until := time.Now().Add(f.atLeast)
	result, err := f.guard(client, lease, signals)
	if err == nil && !result.IsLost && !result.IsRevoked && !result.WasToldToGo {
		holdUntil(until, lease, signals)
	}
	return f.outcome(lease, result, err)
}

// holdUntil keeps the lock after the command, until a time, a signal, a revocation or the loss of the lock.
func holdUntil(until time.Time, lease *recipes.Lease, signals *guard.Signals) {
	rest := time.Until(until)
	if rest <= 0 {
		return
	}
	waiting, stop := signals.EndWait(context.Background())
	defer stop()
	select {
	case <-time.After(rest):
	case <-waiting.Done():
	case <-lease.Revoked():
	case <-lease.Context().Done():
	}
}

func (f *lockFlags) acquire(ctx context.Context, client *recipes.Client, m mode) (*recipes.Lease, error) {
	if err := checkKind(ctx, client, f.path, m.kind); err != nil {
		return nil, f.orBusy(ctx, client, err)
	}
	if err := f.refuseOwnPath(ctx, client, f.permits, f.isShared); err != nil {
		return nil, f.orBusy(ctx, client, err)
	}
	lock, err := m.newLocker(client, f.path, f.id)
	if err != nil {
		return nil, err
	}
	return f.acquireShown(ctx, client, lock, f.isTry)
}

// outcome returns the error with the code of zkr, and releases the lock.
func (f *lockFlags) outcome(lease *recipes.Lease, result guard.Result, err error) error {
	if err != nil {
		_ = lease.Release() // the end of the session releases it as well
		return err
	}
	if result.IsLost {
		return exit.Silent(exit.Lost)
	}
	if err := lease.Release(); err != nil {
		say("%v", err) // the whole group ended while the lock was held
	}
	return endOf(result.Status)
}
