package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// lockFlags are those of the command lock.
type lockFlags struct {
	job

	isTry    bool
	wait     time.Duration
	busyCode int
	isShared bool
	isWrite  bool
	permits  int
}

func newLock(g *globals) *cobra.Command {
	f := lockFlags{job: job{globals: g}}
	c := &cobra.Command{
		Use:   "lock [flags] PATH -- CMD [ARG…]",
		Short: "Run a command while holding a lock",
		Long: `Waits for the lock at PATH, runs CMD in a process group of its own while holding it, and exits
with its code. The group never outlives the lock: SIGTERM comes the grace before the lock can pass to
another, SIGKILL at that time. CMD finds ZKR_LOCK_PATH, ZKR_LOCK_ZNODE and ZKR_FENCING_TOKEN in its
environment.`,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.define(c)
	flags := c.Flags()
	flags.BoolVarP(&f.isTry, "no-wait", "n", false, "exit with 75 if the lock is held")
	flags.DurationVarP(&f.wait, "wait", "w", 0, "exit with 75 if the lock is not acquired within this time")
	flags.IntVarP(&f.busyCode, "busy-code", "E", exit.Busy, "exit with this code instead of 75")
	flags.BoolVar(&f.isShared, "shared", false, "take the read side of a read-write lock")
	flags.BoolVar(&f.isWrite, "write", false, "take the write side of a read-write lock")
	flags.IntVar(&f.permits, "permits", 0, "take one of this many permits of a semaphore")
	return c
}

func (f *lockFlags) run(c *cobra.Command, args []string) error {
	if err := f.parse(c, args); err != nil {
		return err
	}
	flags := c.Flags()
	switch {
	case f.isTry && flags.Changed("wait"):
		return exit.Errorf(exit.Usage, "only one of -n and -w can be given")
	case flags.Changed("wait") && f.wait <= 0:
		return exit.Errorf(exit.Usage, "-w: %v is not a time to wait; use -n", f.wait)
	case f.busyCode < 0 || f.busyCode > 255:
		return exit.Errorf(exit.Usage, "-E: %d is not between 0 and 255", f.busyCode)
	case flags.Changed("permits") && f.permits < 1:
		return exit.Errorf(exit.Usage, "--permits: %d is not a number of permits", f.permits)
	}
	m, err := newMode(f.isShared, f.isWrite, f.permits)
	if err != nil {
		return err
	}
	if err := f.lookUp(); err != nil {
		return err
	}
	return f.lockAndRun(m)
}

// limit bounds connecting and waiting together; 0 is no limit.
func (f *lockFlags) limit() time.Duration {
	if f.isTry {
		return answerTime
	}
	return f.wait
}

func (f *lockFlags) lockAndRun(m mode) error {
	signals := guard.NewSignals()
	waiting, stopWaiting := signals.EndWait(context.Background())
	defer stopWaiting()
	bounded := waiting
	if limit := f.limit(); limit > 0 {
		var stop context.CancelFunc
		bounded, stop = context.WithTimeout(waiting, limit)
		defer stop()
	}
	client, err := f.connect(bounded, f.limit())
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
	if err := orSignal(waiting, context.Cause(waiting)); exit.IsSilent(err) { // it came with the lock
		return err
	}
	result, err := f.guard(client, lease, signals)
	return f.outcome(lease, result, err)
}

func (f *lockFlags) acquire(ctx context.Context, client *recipes.Client, m mode) (*recipes.Lease, error) {
	if err := checkKind(ctx, client, f.path, m.kind); err != nil {
		return nil, f.orBusy(ctx, client, err)
	}
	lock, err := m.newLocker(client, f.path, f.id)
	if err != nil {
		return nil, err
	}
	acquire := lock.Acquire
	if f.isTry {
		acquire = lock.TryAcquire
	}
	lease, err := acquire(ctx)
	if err != nil {
		return nil, f.orBusy(ctx, client, err)
	}
	return lease, nil
}

// orBusy returns the error with the code for a lock that was not acquired, if err says that.
func (f *lockFlags) orBusy(ctx context.Context, client *recipes.Client, err error) error {
	isLate := errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil
	if !isLate && !errors.Is(err, recipes.ErrNotAcquired) {
		return err
	}
	text := f.path + " is busy"
	if isLate {
		text = fmt.Sprintf("%s not acquired within %v", f.path, f.limit())
	}
	if holders := f.describeHolders(client, f.path); holders != "" { //nolint:contextcheck // ctx may have ended
		text += ": " + holders
	}
	return &exit.Error{Code: f.busyCode, Err: errors.New(text)}
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
		say("%v", err) // all of the group had ended while the lock was held
	}
	return exit.Silent(codeOf(result.Status))
}
