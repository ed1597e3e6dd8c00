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
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// asObserver runs fn with a client until a signal arrives or, if limit is not 0, until limit is over. The limit
// includes the connection. A path that does not exist has its own exit code.
func (g *globals) asObserver(limit time.Duration, fn func(ctx context.Context, client *recipes.Client) error) error {
	waiting, stop := guard.NewSignals().EndWait(context.Background())
	defer stop()
	ctx := waiting
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(waiting, limit)
		defer cancel()
	}
	client, err := g.connect(ctx, min(limit, observeTime))
	if err != nil {
		return orSignal(waiting, err)
	}
	defer closeClient(client)
	err = fn(ctx, client)
	switch {
	case isMissing(err):
		err = &exit.Error{Code: exit.Nothing, Err: inWords(err)}
	case errors.Is(err, zk.ErrNoAuth):
		err = inWords(err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && exit.CodeOf(err) == exit.Unavailable:
		err = exit.Errorf(exit.Unavailable, "no answer from %s within %v: %w", g.servers, limit, err)
	}
	return orSignal(waiting, err)
}

// inWords rewords the error about a missing or unreadable path, so that it names the path once. It returns any other error
// unchanged.
func inWords(err error) error {
	failure, ok := zkutil.AsType[*recipes.OpError](err)
	switch {
	case ok && isMissing(err):
		return fmt.Errorf("%s: no such path (a free lock may have none)", failure.Path)
	case ok && errors.Is(err, zk.ErrNoAuth) && strings.Contains(failure.Err.Error(), failure.Path):
		return failure.Err
	default:
		return err
	}
}

// observeTime bounds a command that asks for a few answers, connecting included.
const observeTime = 15 * time.Second

// listTime bounds ls, which may have to read thousands of directories.
func listTime(isRecursive bool) time.Duration {
	if isRecursive {
		return 10 * observeTime
	}
	return observeTime
}
