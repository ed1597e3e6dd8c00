package recipe

import (
	"context"
	"time"

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

// ServersNow returns the earliest and the latest time that the servers' clock may show (see session.Entry.ServersNow).
func ServersNow(l *recipes.Lease) (earliest, latest time.Time) { return private.Entry(l).ServersNow() }

// NoteReturned is session.Entry.NoteReturned for the entry of a lease.
func NoteReturned(l *recipes.Lease) { private.Entry(l).NoteReturned() }

// ReleaseWriting is session.Entry.LeaveWriting for the entry of a lease.
func ReleaseWriting(ctx context.Context, l *recipes.Lease, path string, data []byte, version int32) (isSent bool, err error) {
	return private.Entry(l).LeaveWriting(ctx, path, data, version)
}

// IsGone is session.Entry.IsGone for the entry of a lease.
func IsGone(l *recipes.Lease) bool { return private.Entry(l).IsGone() }

// BeginRelease is Release without the wait. When it returns, the deletion of the znode is started. await waits for
// the deletion, and returns the error of Release. If stop is closed first, the error is nil, and the deletion
// continues in the background. stop may be nil.
func BeginRelease(l *recipes.Lease) (await func(stop <-chan struct{}) error) {
	return BeginReleases(l)[0]
}

// BeginReleases is BeginRelease for several leases, in this order.
func BeginReleases(all ...*recipes.Lease) (awaits []func(stop <-chan struct{}) error) {
	return leaveAll(all, session.Leaving.Await)
}

// EndWork is BeginRelease for a lease whose work is done. await also ends at the time at which trust in a hold would
// end, and logs a deletion that still continues. Its only error is an earlier loss of the lease.
func EndWork(l *recipes.Lease) (await func(stop <-chan struct{}) error) { return EndWorks(l)[0] }

// EndWorks is EndWork for several leases, in this order.
func EndWorks(all ...*recipes.Lease) (awaits []func(stop <-chan struct{}) error) {
	return leaveAll(all, session.Leaving.AwaitAfterWork)
}

// leaveAll begins to release leases, with as few transactions as possible.
func leaveAll(all []*recipes.Lease, await func(session.Leaving, <-chan struct{}) error) (awaits []func(stop <-chan struct{}) error) {
	entries := make([]*session.Entry, len(all))
	for i, l := range all {
		entries[i] = private.Entry(l)
	}
	for i, leaving := range session.LeaveTogether(entries...) {
		awaits = append(awaits, func(stop <-chan struct{}) error { return private.ReleaseError(all[i], await(leaving, stop)) })
	}
	return awaits
}
