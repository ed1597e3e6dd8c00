package cli

import (
	"context"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// locker is a lock that a command can be guarded with.
type locker interface {
	Acquire(ctx context.Context) (*recipes.Lease, error)
	TryAcquire(ctx context.Context) (*recipes.Lease, error)
}

// mode is which lock the flags ask for.
type mode struct {
	kind      string // of package inspect
	newLocker func(c *recipes.Client, path, id string) (locker, error)
}

// newMode returns the mode for the flags, of which at most one may be given.
func newMode(isShared, isWrite bool, permits int) (mode, error) {
	given := 0
	for _, is := range []bool{isShared, isWrite, permits != 0} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return mode{}, exit.Errorf(exit.Usage, "only one of --shared, --write and --permits can be given")
	case permits < 0:
		return mode{}, exit.Errorf(exit.Usage, "--permits: %d is not a number of permits", permits)
	case isShared || isWrite:
		return newReadWriteMode(isShared)
	case permits > 0:
		return newSemaphoreMode(permits)
	default:
		return mode{inspect.KindMutex, newMutex}, nil
	}
}

func newMutex(c *recipes.Client, path, id string) (locker, error) {
	var options []mutex.Option
	if id != "" {
		options = append(options, mutex.WithID(id))
	}
	return mutex.New(c, path, options...)
}

// checkKind refuses a path whose contenders are of another kind, by the names of their znodes. A missing path is of any.
func checkKind(ctx context.Context, c *recipes.Client, path, kind string) error {
	queue, err := inspect.Peek(ctx, c, path, 0)
	switch {
	case isMissing(err):
		return nil
	case err != nil:
		return inWords(err)
	case len(queue.Contenders) > 0 && queue.Kind != kind:
		return exit.Errorf(exit.Usage, "%s is used as a %s, not as a %s", path, queue.Kind, kind)
	default:
		return nil
	}
}
