package bridge

import "github.com/zkrecipes/zkrecipes/internal/zkutil/session"

// Parts are the private parts of package recipes. Client and Lease are types of package recipes, which
// this package can't import, because recipes imports this package.
type Parts[Client, Lease any] struct {
	// Attach returns the session of a client, and path with the client's namespace as prefix.
	Attach func(c Client, path string) (*session.Session, string, error)
	// NewLease returns the lease of an entry.
	NewLease func(entry *session.Entry) Lease
	// Entry returns the entry of a lease.
	Entry func(l Lease) *session.Entry
	// ReleaseError returns the error of Release for an error of the lease's entry.
	ReleaseError func(l Lease, err error) error
}

var registered any //nolint:gochecknoglobals // written once, while package recipes is initialised

// Register stores the parts. Only package recipes calls it, once.
func Register[Client, Lease any](parts Parts[Client, Lease]) { registered = parts }

// Open returns the registered parts. It panics if the types differ from those of Register.
func Open[Client, Lease any]() Parts[Client, Lease] { return registered.(Parts[Client, Lease]) }
