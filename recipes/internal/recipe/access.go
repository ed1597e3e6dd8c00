package recipe

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/bridge"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
)

var private = bridge.Open[*recipes.Client, *recipes.Lease]() //nolint:gochecknoglobals // never changes

// Attach returns the session of a client, and path with the client's namespace as prefix. It fails with
// ErrInvalidArgument for a nil client and for an invalid path.
func Attach(c *recipes.Client, path string) (*session.Session, string, error) {
	return private.Attach(c, path)
}

// AttachAt is Attach for a path at which znodes are created: it also refuses a path with a segment that
// has the name of a contender.
func AttachAt(c *recipes.Client, path string) (*session.Session, string, error) {
	own, full, err := Attach(c, path)
	if err == nil {
		err = queue.CheckPath(full)
	}
	return own, full, err
}

// NewLease returns the lease of an entry.
func NewLease(entry *session.Entry) *recipes.Lease { return private.NewLease(entry) }

// LeaseLock returns the Lock of a recipe whose leases have the type recipes.Lease.
func LeaseLock(opError func(string, error) *recipes.OpError, acquire, tryAcquire func(context.Context) (*recipes.Lease, error)) Lock[*recipes.Lease] {
	return Lock[*recipes.Lease]{OpError: opError, Acquire: acquire, TryAcquire: tryAcquire, EndWork: EndWork}
}

// EndWork is BeginRelease for a lease whose work is done. await also ends when a hold would have ended,
// and logs a deletion that still continues. Its only error is an earlier loss of the lease.
func EndWork(l *recipes.Lease) (await func(stop <-chan struct{}) error) { return private.EndWork(l) }

// BeginRelease is Release without the wait: the deletion of the znode has begun when BeginRelease
// returns. await waits for the deletion, and returns the error of Release. If stop is closed first, the
// error is nil, and the deletion continues in the background. stop may be nil.
func BeginRelease(l *recipes.Lease) (await func(stop <-chan struct{}) error) {
	return private.BeginRelease(l)
}
