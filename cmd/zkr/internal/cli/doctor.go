package cli

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/doctor"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// doctorTime bounds all questions of doctor.
const doctorTime = 40 * time.Second

func newDoctor(g *globals) *cobra.Command {
	format := "text"
	c := &cobra.Command{
		Use:   "doctor [-o text|json] [PATH]",
		Short: "Ask every server, and say what is wrong and what to change",
		Long: `Asks every server whether it serves clients, each by itself, and then looks through a session at ticks, bounds
of session timeouts, syncLimit, versions, ACLs and the time of commits. With PATH it also tries whether this user may
list, create and delete there: it makes an ephemeral znode, compares the clocks by its time, and deletes it.

Each line begins with ok, change or bad. The exit code is 0 if all lines are ok, 1 if there is something to change,
2 if something is bad.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Errorf(exit.Usage, "at most one PATH can be given")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if format != "text" && format != "json" {
				return exit.Errorf(exit.Usage, "-o: %q is neither text nor json", format)
			}
			path := ""
			if len(args) == 1 {
				if err := checkPath(args[0]); err != nil {
					return err
				}
				path = max(g.prefix()+strings.TrimSuffix(args[0], "/"), "/")
			}
			report, err := g.examine(path)
			if err != nil {
				return err
			}
			show := report.Print
			if format == "json" {
				show = report.PrintJSON
			}
			if err := show(c.OutOrStdout()); err != nil {
				return err
			}
			return exit.Silent(report.Code())
		},
	}
	c.Flags().StringVarP(&format, "output", "o", format, "text or json")
	return c
}

// checkServers refuses options and a list of servers that no client accepts, before any server is asked.
func (g *globals) checkServers() error {
	options, err := g.options()
	if err != nil {
		return err
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	options = append(options, recipes.WithDialer(func(string, string, time.Duration) (net.Conn, error) { return nil, net.ErrClosed }))
	if _, err := recipes.Connect(ended, g.serversAlone(), options...); errors.Is(err, recipes.ErrInvalidArgument) {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	return nil
}

// examine returns the report about the servers and, unless path is "", about the path.
func (g *globals) examine(path string) (doctor.Report, error) {
	settings, err := g.tlsSettings()
	if err != nil {
		return nil, err
	}
	if err := g.checkServers(); err != nil {
		return nil, err
	}
	ctx, stop := guard.NewSignals().EndWait(context.Background())
	defer stop()
	bounded, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	_, chroot := g.serverList()
	report := doctor.Run(bounded, doctor.Config{
		Servers: g.serversAlone(),
		TLS:     settings,
		Asked:   g.sessionTimeout,
		Prefix:  g.prefix(),
		Chroot:  chroot,
		Path:    path,
		Connect: func(ctx context.Context, servers []string, limit, timeout time.Duration) (*recipes.Client, error) {
			return g.connectTo(ctx, servers, limit, recipes.WithSessionTimeout(timeout))
		},
	})
	return report, orSignal(ctx, context.Cause(ctx))
}
