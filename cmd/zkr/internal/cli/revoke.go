package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/await"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
)

func newRevoke(g *globals) *cobra.Command {
	wait := time.Duration(0)
	c := &cobra.Command{
		Use:   "revoke [--wait TIME] PATH|ZNODE",
		Short: "Ask those who hold a lock, or one contender, to release",
		Long: `Asks all who hold the lock at PATH, or the contender with ZNODE, also one that waits, to release. The
request overwrites the id of the contender, so it is printed before. A contender need not follow. A znode that
is not ephemeral belongs to no client: its data is left as it is, and the exit code is 1.`,
		Args: one("PATH or ZNODE"),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("wait") && wait <= 0 {
				return exit.Errorf(exit.Usage, "--wait: %v is not a time to wait", wait)
			}
			if err := checkPath(args[0]); err != nil {
				return err
			}
			limit := observeTime
			if wait > 0 {
				limit = wait
			}
			return g.asObserver(limit, func(ctx context.Context, client *recipes.Client) error {
				return g.revoke(ctx, c.OutOrStdout(), client, args[0], wait)
			})
		},
	}
	durationVar(c.Flags(), &wait, "wait", "w", 0, "wait until they have released, for at most this time; then exit with 75")
	return c
}

// revoke asks the holders at a path to release. If wait is not 0, it waits for the deletion of their znodes.
func (g *globals) revoke(ctx context.Context, out io.Writer, client *recipes.Client, path string, wait time.Duration) error {
	asked, err := findContenders(ctx, client, path)
	if err != nil {
		return err
	}
	for _, c := range asked {
		if c.NotEphemeral {
			return exit.Errorf(exit.Nothing, "no client holds %s: nothing was asked; zkr kick deletes a leftover", g.describe(c))
		}
	}
	revoker := revoke.New(client)
	for _, c := range asked {
		if _, err := fmt.Fprintln(out, "asking", g.describe(c)); err != nil {
			return err
		}
		if err := revoker.AttemptRevoke(ctx, c.Path); err != nil {
			return err
		}
	}
	if wait == 0 {
		return nil
	}
	for _, c := range asked {
		if err := awaitGone(ctx, client, c.Path); errors.Is(err, context.DeadlineExceeded) {
			return exit.Errorf(exit.Busy, "not released within %v: %s", wait, g.describe(c))
		} else if err != nil {
			return fmt.Errorf("not known to be released: %s: %w", g.describe(c), err)
		}
	}
	return nil
}

// findContenders returns the contender with a znode, or those who hold a path.
func findContenders(ctx context.Context, client *recipes.Client, path string) ([]inspect.Contender, error) {
	if dir, isZnode := queueOf(path); isZnode {
		c, err := findContender(ctx, client, dir, path)
		return []inspect.Contender{c}, err
	}
	queue, err := inspect.Read(ctx, client, path)
	if err != nil {
		return nil, err
	}
	var holders []inspect.Contender
	for _, c := range queue.Contenders {
		if c.Holds {
			holders = append(holders, c)
		}
	}
	if len(holders) == 0 {
		return nil, exit.Errorf(exit.Nothing, "%s is free: no client holds it", path)
	}
	return holders, nil
}

// findContender returns the contender with a znode in the queue at dir.
func findContender(ctx context.Context, client *recipes.Client, dir, znode string) (inspect.Contender, error) {
	name := znode[strings.LastIndexByte(znode, '/')+1:]
	queue, err := inspect.Read(ctx, client, dir)
	if err != nil {
		return inspect.Contender{}, err
	}
	for _, c := range queue.Contenders {
		if strings.HasSuffix(c.Path, "/"+name) {
			return c, nil
		}
	}
	return inspect.Contender{}, exit.Errorf(exit.Nothing, "%s does not exist: it was deleted or never existed", znode)
}

// queueOf returns the path of the queue to which a znode belongs, and whether it has the name of a
// contender. The contenders of a semaphore are in directories of their own.
func queueOf(znode string) (path string, isContender bool) {
	at := strings.LastIndexByte(znode, '/')
	path, name := max(znode[:at], "/"), znode[at+1:]
	if !inspect.IsContender(name) {
		return path, false
	}
	isPermit := strings.HasPrefix(name, "lease-") || strings.Contains(name, "-lease-")
	if part, ok := strings.CutSuffix(path, "/leases"); ok && isPermit {
		return max(part, "/"), true
	}
	return path, true
}

// maxUnanswered is the age of the latest answer up to which it counts as news.
const maxUnanswered = time.Second

var errUnanswered = errors.New("the servers are silent")

// awaitGone waits for the deletion of a znode, given by its path on the server. If ctx ends first, it returns
// errUnanswered if the servers are silent, and otherwise the error of ctx.
func awaitGone(ctx context.Context, client *recipes.Client, path string) error {
	const pause = 100 * time.Millisecond
	answeredAt := time.Now()
	for {
		isThere, err := await.Call(ctx, func() (bool, error) {
			isThere, _, err := client.Conn().Exists(path)
			return isThere, err
		})
		switch {
		case err == nil && !isThere:
			return nil
		case err == nil:
			answeredAt = time.Now()
		case ctx.Err() != nil && time.Since(answeredAt) > maxUnanswered:
			return errUnanswered
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
