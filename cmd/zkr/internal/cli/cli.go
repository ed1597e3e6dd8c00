// Package cli is the command line of zkr.
package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
)

// Main runs zkr with arguments, without the name of the program. It returns the exit code, or ends the process by the
// signal that ended the guarded command or the wait.
func Main(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(output{os.Stdout})
	root.SetErr(os.Stderr)
	err := root.Execute()
	code := exit.CodeOf(err)
	if err != nil && !exit.IsSilent(err) {
		say("%v", err)
		if code == exit.Usage {
			stderr.queue("see zkr --help\n")
		}
	}
	stderr.flush()
	if s := exit.SignalOf(err); s != 0 {
		process.DieOf(s)
	}
	return code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:                        "zkr",
		Short:                      "Guards commands with locks in ZooKeeper, and shows who holds them",
		Long:                       longHelp,
		Version:                    versionLine(),
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
		SilenceUsage:               true,
		Args:                       cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			return exit.Errorf(exit.Usage, "a command is missing")
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	g := &globals{}
	g.define(root.PersistentFlags())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exit.Error{Code: exit.Usage, Err: err} })
	root.AddCommand(newLock(g), newOnce(g), newElect(g), newList(g), newTop(g), newRevoke(g), newKick(g), newDoctor(g), newWho(g), newDev(g), newVersion())
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		requireUsageErrors(c)
	}
	return root
}

// unknownCommand returns the error about a mistyped command, with the commands of similar names.
func unknownCommand(root *cobra.Command, name string) error {
	if similar := root.SuggestionsFor(name); len(similar) > 0 {
		return exit.Errorf(exit.Usage, "unknown command %q: did you mean %s?", name, strings.Join(similar, " or "))
	}
	return exit.Errorf(exit.Usage, "unknown command %q", name)
}

// requireUsageErrors makes the errors of cobra about arguments those of usage.
func requireUsageErrors(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		requireUsageErrors(sub)
	}
}

const longHelp = `Guards commands with locks in ZooKeeper, and shows who holds them.

Exit codes, besides those of the guarded command and 128+n for its signal:

    1    nothing there: no such path or znode, nobody holds
    64   wrong usage
    69   no server, wrong credentials or no permission
    71   output can't be written, or no process can be started
    74   the lock was lost while the command ran
    75   held by another, or not acquired within the time
    126  the command can't be executed
    127  the command was not found`

// one returns a check for exactly one argument; what names the argument.
func one(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return exit.Errorf(exit.Usage, "give %s and nothing else", what)
		}
		return nil
	}
}

// none is the check for no arguments.
func none(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Errorf(exit.Usage, "%s takes no arguments", c.Name())
	}
	return nil
}

// splitAtDash returns the arguments before and after "--".
func splitAtDash(c *cobra.Command, args []string) (before, behind []string) {
	at := c.ArgsLenAtDash()
	if at < 0 {
		return args, nil
	}
	return args[:at], args[at:]
}
