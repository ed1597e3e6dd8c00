package recipe

import (
	"github.com/zkrecipes/zkrecipes/internal/zkutil/bridge"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
)

var private = bridge.Open[*recipes.Client, *recipes.Lease]() //nolint:gochecknoglobals // never changes

// Attach returns the session of a client, and path with the client's namespace before it. It
// fails with ErrInvalidArgument for a nil client and for an invalid path.
func Attach(c *recipes.Client, path string) (*session.Session, string, error) {
	return private.Attach(c, path)
}

// NewLease returns the lease of an entry.
func NewLease(entry *session.Entry) *recipes.Lease { return private.NewLease(entry) }

// BeginRelease is Release without the wait: the deletion of the znode has begun when it returns. await
// waits for that, and returns the error of Release. If stop is closed first, the error is nil, and the
// deletion goes on in the background. stop may be nil.
func BeginRelease(l *recipes.Lease) (await func(stop <-chan struct{}) error) {
	return private.BeginRelease(l)
}
