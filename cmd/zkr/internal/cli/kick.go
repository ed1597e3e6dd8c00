package cli

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/await"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func newKick(g *globals) *cobra.Command {
	isSure := false
	c := &cobra.Command{
		Use:   "kick --yes ZNODE",
		Short: "Delete the znode of a contender",
		Long: `Deletes the znode of a contender, so that the next one gets the lock although the contender may still
work. Only its fencing token keeps it from doing harm then. Ask with revoke first.`,
		Args: one("ZNODE"),
		RunE: func(_ *cobra.Command, args []string) error {
			znode := args[0]
			if err := checkPath(znode); err != nil {
				return err
			}
			if _, isContender := queueOf(znode); !isContender {
				return exit.Errorf(exit.Usage, "%s is not the znode of a contender", znode)
			}
			if !isSure {
				return exit.Errorf(exit.Usage, "kick needs --yes: the contender may still work, and the next one gets the lock")
			}
			return g.asObserver(observeTime, func(ctx context.Context, client *recipes.Client) error {
				return g.kick(ctx, client, znode)
			})
		},
	}
	c.Flags().BoolVar(&isSure, "yes", false, "yes, although two may work at the same time")
	return c
}

func (g *globals) kick(ctx context.Context, client *recipes.Client, znode string) error {
	dir, _ := queueOf(znode)
	contender, err := findContender(ctx, client, dir, znode)
	if err != nil {
		return err
	}
	err = await.Do(ctx, func() error { return client.Conn().Delete(contender.Path, -1) })
	if errors.Is(err, zk.ErrNotEmpty) {
		return exit.Errorf(exit.Nothing, "not deleted, because it has children, which the znode of a contender never has: %s", g.describe(contender))
	}
	if err != nil {
		return err
	}
	say("deleted %s", g.describe(contender))
	return nil
}
