package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

func newElect(g *globals) *cobra.Command {
	j := job{globals: g}
	isListing := false
	c := &cobra.Command{
		Use:   "elect [flags] PATH -- CMD [ARG…] | elect -l PATH",
		Short: "Run a command while leading",
		Long: `Waits until this process leads the election at PATH, a LeaderSelector's, runs CMD in a process group
of its own meanwhile, and exits with its code. When the term is lost, CMD's group is killed, and the
process stands again. After a revocation it does not. With -l it prints a line for each change of the
leader, TIME ID ZNODE, until it is interrupted.`,
		RunE: func(c *cobra.Command, args []string) error {
			if isListing {
				if before, behind := splitAtDash(c, args); len(before) != 1 || len(behind) != 0 {
					return exit.Errorf(exit.Usage, "-l needs one PATH, and no command")
				}
				return g.listLeaders(c.OutOrStdout(), args[0])
			}
			if err := j.parse(c, args); err != nil {
				return err
			}
			if err := j.lookUp(); err != nil {
				return err
			}
			return j.elect()
		},
	}
	j.define(c)
	c.Flags().BoolVarP(&isListing, "listen", "l", false, "print the leaders as they change")
	return c
}

// elect stands and leads until a term ends otherwise than by a loss.
func (j *job) elect() error {
	signals := guard.NewSignals()
	client, lock, err := j.join(signals)
	if err != nil {
		return err
	}
	defer closeClient(client)
	for {
		if standsAgain, err := j.lead(client, lock, signals); !standsAgain {
			return err
		}
	}
}

// join connects and returns the election: a LeaderSelector is a mutex on the wire.
func (j *job) join(signals *guard.Signals) (*recipes.Client, locker, error) {
	ctx, stop := signals.EndWait(context.Background())
	defer stop()
	client, err := j.connect(ctx, 0)
	if err != nil {
		return nil, nil, orSignal(ctx, err)
	}
	err = checkKind(ctx, client, j.path, inspect.KindMutex)
	var lock locker
	if err == nil {
		lock, err = newMutex(client, j.path, j.id)
	}
	if err != nil {
		closeClient(client)
		return nil, nil, orSignal(ctx, err)
	}
	return client, lock, nil
}

// lead waits until this process leads, and runs the command. It reports whether to do so again; else the
// error has the code of zkr.
func (j *job) lead(client *recipes.Client, lock locker, signals *guard.Signals) (standsAgain bool, err error) {
	ctx, stop := signals.EndWait(context.Background())
	defer stop()
	lease, err := lock.Acquire(ctx)
	if err != nil {
		return false, orSignal(ctx, err)
	}
	signals.ForChild()
	stop()
	if err := orSignal(ctx, context.Cause(ctx)); exit.IsSilent(err) { // it came with the term
		return false, err
	}
	say("leading: %s, token %d", j.shown(lease.Path()), lease.FencingToken())
	result, err := j.guard(client, lease, signals)
	_ = lease.Release() // after a loss there is nothing to release
	switch {
	case err != nil:
		return false, err
	case !result.IsLost:
		return false, exit.Silent(codeOf(result.Status))
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
	for leader := range election.Observe(ctx) {
		id, znode := quoted(leader.ID), g.shown(leader.Path)
		if leader.Path == "" {
			id, znode = "-", "-"
		}
		if _, err := fmt.Fprintf(out, "%s %s %s\n", time.Now().Format("2006-01-02T15:04:05.000Z07:00"), id, znode); err != nil {
			return err
		}
	}
	return orSignal(ctx, context.Cause(ctx))
}

// quoted is an ID as one word: in quotation marks if it has spaces, or could be taken for none.
func quoted(id string) string {
	isOdd := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == '"' }
	if id == "" || id == "-" || strings.ContainsFunc(id, isOdd) {
		return strconv.Quote(id)
	}
	return id
}
