package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/once"
)

// onceFlags are those of the command once.
type onceFlags struct {
	job

	at       string // the occurrence
	retries  bool
	isLast   bool
	isForget bool
	doneCode int
}

func newOnce(g *globals) *cobra.Command {
	f := onceFlags{job: job{globals: g}}
	c := &cobra.Command{
		Use:   "once --at OCCURRENCE [flags] PATH -- CMD [ARG…] | once --last PATH | once --forget PATH",
		Short: "Run a command at most once per occurrence, on all hosts together",
		Long: `Runs CMD unless a host ran it for OCCURRENCE before. OCCURRENCE is a text that grows, the same on all
hosts, and names the event: the day, as of date -u +%FT00:00Z, the hour, or a number. The latest one is kept at
PATH/last. A run that fails or is lost is not repeated, unless --retry is given, on all hosts. Where CMD is done,
a line says who ran it, and the exit code is that of --done-code. Behind a later occurrence, in another format, or
for a time that is more than a minute ahead of the servers' clock, CMD does not run, a line says why, also with -q,
and the exit code is 65. --forget erases the latest occurrence. CMD is guarded as by zkr lock.`,
		RunE: func(c *cobra.Command, args []string) error {
			flag, act := "--last", g.showLast
			if f.isForget {
				flag, act = "--forget", g.forget
			}
			if !f.isLast && !f.isForget {
				return f.run(c, args)
			}
			if before, behind := splitAtDash(c, args); len(before) != 1 || len(behind) != 0 || f.isLast && f.isForget {
				return exit.Errorf(exit.Usage, "%s needs one PATH, and no command", flag)
			}
			return act(c.OutOrStdout(), args[0])
		},
	}
	f.define(c)
	flags := c.Flags()
	flags.StringVar(&f.at, "at", "", "the occurrence, such as 2026-11-26T03:00")
	flags.BoolVar(&f.retries, "retry", false, "run the latest occurrence again until CMD has ended with 0")
	flags.BoolVar(&f.isLast, "last", false, "print the latest occurrence, and who has run it")
	flags.BoolVar(&f.isForget, "forget", false, "erase the latest occurrence: PATH is as if nothing had run. Waits 3 s for a run that is going on")
	flags.IntVar(&f.doneCode, "done-code", exit.OK, "exit with this code if the occurrence is done")
	return c
}

func (f *onceFlags) run(c *cobra.Command, args []string) error {
	if err := f.parse(c, args); err != nil {
		return err
	}
	switch {
	case f.at == "":
		return exit.Errorf(exit.Usage, "--at is needed: the occurrence to run")
	case f.doneCode < 0 || f.doneCode > 255:
		return exit.Errorf(exit.Usage, "--done-code: %d is not between 0 and 255", f.doneCode)
	}
	if err := f.prepare(); err != nil {
		return err
	}
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
	if err := f.checkPathOf(bounded, client); err != nil {
		return orSignal(waiting, f.orBusy(bounded, client, err))
	}
	return f.runOnce(waiting, bounded, client, signals, stopWaiting)
}

func (f *onceFlags) checkPathOf(ctx context.Context, client *recipes.Client) error {
	if err := checkKind(ctx, client, f.path, inspect.KindMutex); err != nil {
		return err
	}
	return f.refuseOwnPath(ctx, client, 0, false)
}

// onceError is the error of a command that failed: err has the exit code of zkr.
type onceError struct {
	error

	text string // for the record
}

func (e onceError) Error() string { return e.text }
func (e onceError) Unwrap() error { return e.error }

// runOnce runs the command unless the occurrence is done. The context bounded ends with the wait, and waiting with a signal.
func (f *onceFlags) runOnce(waiting, bounded context.Context, client *recipes.Client, signals *guard.Signals, stopWaiting func()) error {
	options := []once.Option{once.WithID(f.id)}
	if f.retries {
		options = append(options, once.WithRetry())
	}
	o, err := once.New(client, f.path, options...)
	if err != nil {
		return err
	}
	// The work outlasts the wait, so the wait ends the context of Do only before the command starts.
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stopRelay := context.AfterFunc(bounded, func() { cancel(context.Cause(bounded)) })
	defer stopRelay()
	stopShowing := f.showWaiting(bounded, client)
	defer stopShowing()
	work := func(_ context.Context, lease *recipes.Lease) error {
		if !stopRelay() {
			return context.Cause(bounded)
		}
		stopShowing()
		signals.ForChild()
		stopWaiting()
		if err := orSignal(waiting, context.Cause(waiting)); exit.IsSilent(err) { // the signal arrived with the lock
			return onceError{err, "ended by a signal before it began"}
		}
		return f.guardOnce(client, lease, signals) //nolint:contextcheck // the guard has the lease's context
	}
	if f.isTry {
		err = o.DoWithin(ctx, 0, f.at, work) //nolint:contextcheck // as above
	} else {
		err = o.Do(ctx, f.at, work) //nolint:contextcheck // as above
	}
	return f.outcome(bounded, waiting, client, err)
}

// guardOnce runs the command. Its error is an onceError.
func (f *onceFlags) guardOnce(client *recipes.Client, lease *recipes.Lease, signals *guard.Signals) error {
	result, err := f.guard(client, lease, signals)
	switch {
	case err != nil:
		return onceError{err, err.Error()}
	case result.IsLost:
		return onceError{exit.Silent(exit.Lost), "the lock was lost"}
	}
	if err = endOf(result.Status); err == nil {
		return nil
	}
	if result.Status.Signaled() {
		return onceError{err, "ended by " + result.Status.Signal().String()}
	}
	return onceError{err, fmt.Sprintf("exit code %d", result.Status.ExitStatus())}
}

// outcome returns the error with the code of zkr.
func (f *onceFlags) outcome(bounded, waiting context.Context, client *recipes.Client, err error) error {
	if done, ok := zkutil.AsType[*once.DoneError](err); ok {
		if !f.isQuiet {
			say("%s: %v", f.path, done)
		}
		return exit.Silent(f.doneCode)
	}
	for _, refusal := range []error{once.ErrSuperseded, once.ErrFormat, once.ErrTooEarly} {
		if errors.Is(err, refusal) {
			return &exit.Error{Code: exit.NotRun, Err: err}
		}
	}
	if errors.Is(err, once.ErrNotRecorded) {
		say("%v", err)
	}
	if ended, ok := zkutil.AsType[onceError](err); ok {
		return ended.error
	}
	if errors.Is(err, once.ErrNotRecorded) {
		return nil // the command succeeded
	}
	if err != nil {
		return orSignal(waiting, f.orBusy(bounded, client, err))
	}
	return nil
}

// showLast prints the record of the latest occurrence.
func (g *globals) showLast(out io.Writer, path string) error {
	return g.withLast(path, func(_ context.Context, _ *once.Once, last once.Record) error {
		_, err := fmt.Fprintln(out, last)
		return err
	})
}

// forgetTime bounds the wait of --forget for the end of a run.
const forgetTime = 3 * time.Second

// forget erases the record of the latest occurrence, and prints it.
func (g *globals) forget(out io.Writer, path string) error {
	return g.withLast(path, func(ctx context.Context, o *once.Once, last once.Record) error {
		ctx, cancel := context.WithTimeout(ctx, forgetTime)
		defer cancel()
		err := o.Forget(ctx)
		if _, isWait := zkutil.AsType[*recipes.WaitError](err); isWait {
			return &exit.Error{Code: exit.Busy, Err: err}
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, "forgotten:", last)
		return err
	})
}

// withLast calls act with the record of the latest occurrence.
func (g *globals) withLast(path string, act func(ctx context.Context, o *once.Once, last once.Record) error) error {
	if err := checkPath(path); err != nil {
		return err
	}
	return g.asObserver(observeTime, func(ctx context.Context, client *recipes.Client) error {
		o, err := once.New(client, path)
		if err != nil {
			return err
		}
		last, err := o.Last(ctx)
		if err != nil {
			return err
		}
		if last.Occurrence == "" {
			return exit.Errorf(exit.Nothing, "nothing ran at %s yet", path)
		}
		return act(ctx, o, last)
	})
}
