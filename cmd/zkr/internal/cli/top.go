package cli

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/screen"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/top"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func newTop(g *globals) *cobra.Command {
	every, isOnce, format := 2*time.Second, false, "text"
	c := &cobra.Command{
		Use:   "top ROOT",
		Short: "Show all locks below a path as they change, the longest waits first",
		Long: `Shows all locks and elections below ROOT as they change, the longest waits first, until q or a signal.
Where there is no terminal it prints a line for each lock instead, again and again. With -o json it prints an array
in a line, with times in seconds.`,
		Args: one("ROOT"),
		RunE: func(c *cobra.Command, args []string) error {
			if every <= 0 {
				return exit.Errorf(exit.Usage, "--every: %v is not a time", every)
			}
			if format != "text" && format != "json" {
				return exit.Errorf(exit.Usage, "-o: %q is neither text nor json", format)
			}
			if err := checkPath(args[0]); err != nil {
				return err
			}
			limit := time.Duration(0)
			if isOnce {
				limit = listTime(true)
			}
			return g.asObserver(limit, func(ctx context.Context, client *recipes.Client) error {
				cfg := top.Config{
					Client: client, Root: args[0], Every: every, IsOnce: isOnce, IsJSON: format == "json",
					Report: func(err error) { say("%v", inWords(err)) },
				}
				if !isOnce && !cfg.IsJSON && screen.IsTerminal(os.Stdin) && screen.IsTerminal(os.Stdout) {
					return top.Screen(ctx, os.Stdin, os.Stdout, cfg)
				}
				return top.Lines(ctx, c.OutOrStdout(), cfg)
			})
		},
	}
	durationVar(c.Flags(), &every, "every", "", every, "time between two looks")
	c.Flags().BoolVar(&isOnce, "once", false, "print what is there now, and end")
	c.Flags().StringVarP(&format, "output", "o", format, "text or json")
	return c
}
