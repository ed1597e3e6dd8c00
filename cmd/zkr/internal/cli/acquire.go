package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// waitFlags say how long to wait.
type waitFlags struct {
	isTry    bool
	wait     time.Duration
	busyCode int
	isQuiet  bool
}

func (w *waitFlags) define(c *cobra.Command) {
	flags := c.Flags()
	flags.BoolVarP(&w.isTry, "no-wait", "n", false, "exit with 75 if another one holds it")
	durationVar(flags, &w.wait, "wait", "w", 0, "exit with 75 if it is not acquired within this time, such as 10 (seconds) or 5m")
	flags.IntVarP(&w.busyCode, "busy-code", "E", exit.Busy, "exit with this code instead of 75")
	flags.BoolVarP(&w.isQuiet, "quiet", "q", false, "do not say on a terminal what is waited for; with -n, print nothing if another one holds it")
}

func (w *waitFlags) check(c *cobra.Command) error {
	flags := c.Flags()
	switch {
	case w.isTry && flags.Changed("wait"):
		return exit.Errorf(exit.Usage, "only one of -n and -w can be given")
	case flags.Changed("wait") && w.wait <= 0:
		return exit.Errorf(exit.Usage, "-w: %v is not a time to wait; use -n", w.wait)
	case w.busyCode < 0 || w.busyCode > 255:
		return exit.Errorf(exit.Usage, "-E: %d is not between 0 and 255", w.busyCode)
	default:
		return nil
	}
}

// limit bounds connecting and waiting together; 0 is no limit.
func (w *waitFlags) limit() time.Duration {
	if w.isTry {
		return answerTime
	}
	return w.wait
}

func (w *waitFlags) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if limit := w.limit(); limit > 0 {
		return context.WithTimeout(ctx, limit)
	}
	return context.WithCancel(ctx)
}

// connectShown connects within the limit, and says so on a terminal if that takes long.
func (j *job) connectShown(ctx context.Context) (*recipes.Client, error) {
	defer j.showConnecting(ctx)()
	return j.connect(ctx, j.limit())
}

// acquireShown acquires a lock, and shows the holders on a terminal while it waits. With isTry it does not wait. If
// another contender holds the lock, the error has the exit code for that case.
func (j *job) acquireShown(ctx context.Context, client *recipes.Client, lock locker, isTry bool) (*recipes.Lease, error) {
	defer j.showWaiting(ctx, client)()
	acquire := lock.Acquire
	if isTry {
		acquire = lock.TryAcquire
	}
	lease, err := acquire(ctx)
	if err != nil {
		return nil, j.orBusy(ctx, client, err)
	}
	return lease, nil
}

// orBusy returns err, with the exit code for a busy lock if err reports one.
func (j *job) orBusy(ctx context.Context, client *recipes.Client, err error) error {
	isLate := errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil
	isBusy := errors.Is(err, recipes.ErrNotAcquired) && !errors.Is(err, context.Canceled)
	if !isLate && !isBusy {
		return err
	}
	if j.isQuiet && j.isTry {
		return exit.Silent(j.busyCode)
	}
	text := j.path + " is busy"
	if isLate {
		text = fmt.Sprintf("%s not acquired within %v", j.path, j.limit())
	}
	if holders := j.describeHolders(client, j.path); holders != "" { //nolint:contextcheck // ctx may be over
		text += ": " + holders
	}
	return &exit.Error{Code: j.busyCode, Err: errors.New(text)}
}
