package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/doctor"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func newDoctor(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look at the servers, and say what to change",
		Long: `Looks at ticks, bounds of session timeouts, syncLimit, versions, ACLs and clocks. Each line begins
with ok, change or unknown. It makes an ephemeral znode, whose time it reads, and deletes it.`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			settings, err := g.tlsSettings()
			if err != nil {
				return err
			}
			return g.asObserver(func(ctx context.Context, client *recipes.Client) error {
				return doctor.Run(ctx, c.OutOrStdout(), doctor.Config{
					Client: client, Servers: strings.Split(g.servers, ","), TLS: settings, Asked: g.sessionTimeout, Prefix: g.prefix(),
				})
			})
		},
	}
}
