package cli

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/top"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func newTop(g *globals) *cobra.Command {
	every := 2 * time.Second
	c := &cobra.Command{
		Use:   "top ROOT",
		Short: "Show all locks below a path as they change, the longest waits first",
		Long: `Shows all locks and elections below ROOT as they change, the longest waits first, until q or a signal.
Where there is no terminal it prints a line for each lock instead, again and again.`,
		Args: one("ROOT"),
		RunE: func(c *cobra.Command, args []string) error {
			if every <= 0 {
				return exit.Errorf(exit.Usage, "--every: %v is not a time", every)
			}
			if err := checkPath(args[0]); err != nil {
				return err
			}
			return g.asObserver(func(ctx context.Context, client *recipes.Client) error {
				cfg := top.Config{Client: client, Root: args[0], Every: every}
				if isTerminal(os.Stdin) && isTerminal(os.Stdout) {
					return top.Screen(ctx, os.Stdin, os.Stdout, cfg)
				}
				return top.Lines(ctx, c.OutOrStdout(), cfg)
			})
		},
	}
	c.Flags().DurationVar(&every, "every", every, "time between two looks")
	return c
}

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
