package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/await"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/clients"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

// defaultAdminPort is that of zookeeper.admin.serverPort.
const defaultAdminPort = 8080

func newWho(g *globals) *cobra.Command {
	adminPort := defaultAdminPort
	c := &cobra.Command{
		Use:   "who PATH|ZNODE",
		Short: "Show from which address a lock is held",
		Long: `Prints the address of the client that holds the lock at PATH, or to which the contender with ZNODE belongs, also
where the id is empty or was overwritten by a revocation. The servers know the addresses: they tell them by the
four-letter word cons, if their 4lw.commands.whitelist has it, or by their admin server.`,
		Args: one("PATH or ZNODE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkPath(args[0]); err != nil {
				return err
			}
			return g.asObserver(observeTime, func(ctx context.Context, client *recipes.Client) error {
				found, err := findContenders(ctx, client, args[0])
				if err != nil {
					return err
				}
				return g.printClients(ctx, c.OutOrStdout(), client, found, adminPort)
			})
		},
	}
	c.Flags().IntVar(&adminPort, "admin-port", adminPort, "port of the servers' admin servers, asked where cons is not allowed")
	return c
}

func (g *globals) printClients(ctx context.Context, out io.Writer, client *recipes.Client, contenders []inspect.Contender, adminPort int) error {
	addresses, table, err := g.addressesOf(ctx, client, contenders, adminPort)
	if err != nil {
		return err
	}
	isKnown := true
	for i, c := range contenders {
		address := addresses[i]
		if address == "" {
			address, isKnown = "-", false
		}
		if _, err := fmt.Fprintf(out, "%s  %s\n", address, g.describe(c)); err != nil {
			return err
		}
	}
	if isKnown {
		return nil
	}
	text := "no connection is known: the client is not connected now, or to a server that was not asked"
	if refusals := table.Refusals(); len(refusals) > 0 {
		text = strings.Join(refusals, "\n  ")
	}
	return exit.Errorf(exit.Unavailable, "%s", text)
}

// addressesOf returns the client's address of each contender, "" where it is not known.
func (g *globals) addressesOf(ctx context.Context, client *recipes.Client, contenders []inspect.Contender, adminPort int) ([]string, clients.Table, error) {
	settings, err := g.tlsSettings()
	if err != nil {
		return nil, clients.Table{}, err
	}
	table := clients.Find(ctx, g.serversAlone(), settings, adminPort)
	addresses := make([]string, len(contenders))
	for i, c := range contenders {
		stat, err := await.Call(ctx, func() (*zk.Stat, error) {
			_, stat, err := client.Conn().Exists(c.Path)
			return stat, err
		})
		switch {
		case err == nil:
			addresses[i] = table.Of(stat.EphemeralOwner)
		case !isMissing(err): // otherwise it just disconnected
			return nil, table, err
		}
	}
	return addresses, table, nil
}
