package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

func isMissing(err error) bool { return errors.Is(err, zk.ErrNoNode) }

// orSignal returns err, or the code of the signal that has ended ctx.
func orSignal(ctx context.Context, err error) error {
	if s, ok := zkutil.AsType[guard.SignalError](context.Cause(ctx)); ok && err != nil {
		return exit.BySignal(s.Signal)
	}
	return err
}

// answerTime bounds questions whose answers are not essential, and those of -n.
const answerTime = 5 * time.Second

// describeHolders returns a line about who holds a path, "" if nobody can be named.
func (g *globals) describeHolders(c *recipes.Client, path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime/2)
	defer cancel()
	queue, err := inspect.Read(ctx, c, path)
	if err != nil {
		return ""
	}
	text := ""
	for _, contender := range queue.Contenders {
		if contender.Holds {
			if text != "" {
				text += ", and by "
			}
			text += g.describe(contender)
		}
	}
	if text == "" {
		return ""
	}
	return "held by " + text
}

func (g *globals) describe(c inspect.Contender) string {
	more := ""
	if c.Revoked {
		more = ", asked to release"
	}
	if c.NotEphemeral {
		more += ", not ephemeral: stays until somebody deletes it"
	}
	return fmt.Sprintf("%s at %s (token %d, since %s%s)", shownID(c), zkutil.Printable(g.shown(c.Path)), c.Token, c.Since.Format(time.RFC3339), more)
}

// shownID is an ID in quotation marks.
func shownID(c inspect.Contender) string {
	if c.ID == "" && c.Revoked {
		return "an unknown contender"
	}
	return strconv.Quote(c.ID)
}
