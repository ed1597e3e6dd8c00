package cli

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// asObserver runs fn with a client, until a signal comes or, if limit is not 0, until the limit is over, which
// bounds connecting as well. A path that does not exist has a code of its own.
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
		err = &exit.Error{Code: exit.Nothing, Err: err}
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && exit.CodeOf(err) == exit.Unavailable:
		err = exit.Errorf(exit.Unavailable, "no answer from %s within %v: %w", g.servers, limit, err)
	}
	return orSignal(waiting, err)
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
