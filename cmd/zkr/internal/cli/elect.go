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
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/screen"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// electFlags are those of the command elect.
type electFlags struct {
	job

	isListing bool
	isLatch   bool
	transfer  string // PATH of the election whose leadership is to be handed over; "": none
	priority  int
	isSteered bool // priority was given
}

func newElect(g *globals) *cobra.Command {
	f := electFlags{job: job{globals: g}}
	c := &cobra.Command{
		Use:   "elect [flags] PATH -- CMD [ARG…] | elect -l PATH | elect --transfer PATH ID",
		Short: "Run a command while leading",
		Long: `Waits until this process leads the election at PATH, runs CMD in a process group of its own meanwhile,
and exits with its code. It stands as a LeaderLatch where others do, else as a LeaderSelector. When the
term is lost, CMD's group is killed, and the process stands again. After a revocation it does not. -n
and -w are about the first term. With -l it prints a line for each change of the leader, TIME ID ZNODE,
until it is interrupted. With --transfer the candidate with ID leads next: those ahead of it yield, if they have
a priority.`,
		RunE: func(c *cobra.Command, args []string) error {
			if f.isListing {
				if before, behind := splitAtDash(c, args); len(before) != 1 || len(behind) != 0 {
					return exit.Errorf(exit.Usage, "-l needs one PATH, and no command")
				}
				return g.listLeaders(c.OutOrStdout(), args[0])
			}
			if c.Flags().Changed("transfer") {
				if before, behind := splitAtDash(c, args); len(before) != 1 || len(behind) != 0 {
					return exit.Errorf(exit.Usage, "--transfer needs PATH and ID, and no command")
				}
				return f.transferTo(c.OutOrStdout(), args[0])
			}
			if err := f.parse(c, args); err != nil {
				return err
			}
			if c.Flags().Changed("priority") {
				f.isLatch, f.isSteered = true, true
			}
			if err := f.prepare(); err != nil {
				return err
			}
			return f.elect()
		},
	}
	f.define(c)
	c.Flags().BoolVarP(&f.isListing, "listen", "l", false, "print the leaders as they change")
	c.Flags().BoolVar(&f.isLatch, "latch", false, "stand as a LeaderLatch also where nobody stands yet")
	c.Flags().StringVar(&f.transfer, "transfer", "", "hand the leadership at PATH to the candidate ID")
	c.Flags().Lookup("transfer").Usage = "hand the leadership at `PATH` to the candidate ID"
	c.Flags().IntVar(&f.priority, "priority", 0, "stand as a LeaderLatch with this priority, and yield to a higher one and to --transfer")
	return c
}

// transferTo has the candidate with an id lead, and waits for that within -w.
func (f *electFlags) transferTo(out io.Writer, id string) error {
	if err := checkPath(f.transfer); err != nil {
		return err
	}
	limit := observeTime
	if f.wait > 0 {
		limit = f.wait
	}
	return f.asObserver(limit, func(ctx context.Context, client *recipes.Client) error {
		election, err := selector.New(client, f.transfer, func(context.Context, *recipes.Lease) error { return nil })
		if err != nil {
			return err
		}
		err = election.TransferTo(ctx, id)
		switch {
		case errors.Is(err, recipes.ErrNoCandidate):
			return exit.Errorf(exit.Nothing, "%w", err)
		case errors.Is(err, recipes.ErrNotSteered):
			return exit.Errorf(exit.Usage, "%w", err)
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
			return exit.Errorf(exit.Busy, "%s does not lead after %v", id, limit)
		case err != nil:
			return err
		}
		_, err = fmt.Fprintf(out, "%s leads %s next\n", screen.Field(id), f.transfer)
		return err
	})
}

// elect stands and leads until a term ends otherwise than by a loss.
func (f *electFlags) elect() error {
	signals := guard.NewSignals()
	client, election, err := f.join(signals)
	if err != nil {
		return err
	}
	defer closeClient(client)
	for isFirst := true; ; isFirst = false {
		if standsAgain, err := f.lead(client, election, signals, isFirst); !standsAgain {
			return err
		}
	}
}

// latchOptions returns the options of a latch, except the id.
func (f *electFlags) latchOptions() []latch.Option {
	if f.isSteered {
		return []latch.Option{latch.WithPriority(f.priority)}
	}
	return nil
}

// join connects and returns the election.
func (f *electFlags) join(signals *guard.Signals) (*recipes.Client, election, error) {
	ctx, stop := signals.EndWait(context.Background())
	defer stop()
	bounded, stopBound := f.bound(ctx)
	defer stopBound()
	client, err := f.connectShown(bounded)
	if err != nil {
		return nil, nil, orSignal(ctx, err)
	}
	var e election
	if err = f.refuseOwnPath(bounded, client, 0, false); err == nil {
		e, err = newElection(bounded, client, f.path, f.id, f.isLatch, f.latchOptions()...)
	}
	if err != nil {
		err = orSignal(ctx, f.orBusy(bounded, client, err))
	} else {
		stop()
		if err = orSignal(ctx, context.Cause(ctx)); !exit.IsSilent(err) { // otherwise the signal arrived with the last answer
			return client, e, nil
		}
	}
	closeClient(client)
	return nil, nil, err
}

// lead waits until this process leads, and runs the command. It reports whether to do so again; else the
// error has the code of zkr.
func (f *electFlags) lead(client *recipes.Client, e election, signals *guard.Signals, isFirst bool) (standsAgain bool, err error) {
	ctx, stop := signals.EndWait(context.Background())
	defer stop()
	bounded, stopBound := context.WithCancel(ctx)
	if isFirst {
		bounded, stopBound = f.bound(ctx)
	}
	defer stopBound()
	lease, err := f.acquireShown(bounded, client, e, isFirst && f.isTry)
	if err != nil {
		return false, orSignal(ctx, err)
	}
	defer e.leave(lease)
	signals.ForChild()
	stop()
	if err := orSignal(ctx, context.Cause(ctx)); exit.IsSilent(err) { // the signal arrived with the term
		return false, err
	}
	say("leading: %s, token %d", f.shown(lease.Path()), lease.FencingToken())
	result, err := f.guard(client, lease, signals)
	switch {
	case err != nil:
		return false, err
	case !result.IsLost:
		return false, endOf(result.Status)
	case result.WasToldToGo || result.IsRevoked:
		return false, exit.Silent(exit.Lost)
	default:
		return true, nil
	}
}

// listLeaders prints the leaders as they change.
func (g *globals) listLeaders(out io.Writer, path string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	ctx, stop := guard.NewSignals().EndWait(context.Background())
	defer stop()
	client, err := g.connect(ctx, 0)
	if err != nil {
		return orSignal(ctx, err)
	}
	defer closeClient(client)
	election, err := selector.New(client, path, func(context.Context, *recipes.Lease) error { return nil })
	if err != nil {
		return err
	}
	if _, err := election.Leader(ctx); err != nil { // a refusal, say: Observe would try again in silence
		return orSignal(ctx, err)
	}
	for leader := range election.Observe(ctx) {
		id, znode := screen.Field(leader.ID), screen.Field(g.shown(leader.Path))
		if leader.Path == "" {
			id, znode = "-", "-"
		}
		if _, err := fmt.Fprintf(out, "%s %s %s\n", time.Now().Format("2006-01-02T15:04:05.000Z07:00"), id, znode); err != nil {
			return err
		}
	}
	return orSignal(ctx, context.Cause(ctx))
}
