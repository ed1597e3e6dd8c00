package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/screen"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

func isMissing(err error) bool { return errors.Is(err, zk.ErrNoNode) }

// orSignal returns err, or the exit code of the signal that ended ctx.
func orSignal(ctx context.Context, err error) error {
	if s, ok := zkutil.AsType[guard.SignalError](context.Cause(ctx)); ok && err != nil {
		return exit.BySignal(s.Signal)
	}
	return err
}

// answerTime bounds questions whose answers are not essential, and those of -n.
const answerTime = 5 * time.Second

// maxNamed bounds the holders that a text names.
const maxNamed = 4

// describeHolders returns a line about the holders of a path, or "" without any.
func (g *globals) describeHolders(c *recipes.Client, path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime/2)
	defer cancel()
	queue, err := inspect.Peek(ctx, c, path, maxNamed)
	if err != nil {
		return ""
	}
	var named []string
	unnamed := 0
	for i, contender := range queue.Contenders {
		switch {
		case !contender.Holds:
		case i < maxNamed:
			named = append(named, g.describe(contender))
		default:
			unnamed++
		}
	}
	if len(named) == 0 {
		return ""
	}
	text := "held by " + strings.Join(named, ", and by ")
	if unnamed > 0 {
		text += fmt.Sprintf(", and by %d more", unnamed)
	}
	return text
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
	return screen.Quote(c.ID)
}
