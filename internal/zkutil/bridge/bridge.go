package bridge

import "github.com/zkrecipes/zkrecipes/internal/zkutil/session"

// Parts are the private parts of package recipes. Client and Lease are its types, which this
// package can't import: recipes imports this one.
type Parts[Client, Lease any] struct {
	// Attach returns the session of a client, and path with the client's namespace before it.
	Attach func(c Client, path string) (*session.Session, string, error)
	// NewLease returns the lease of an entry.
	NewLease func(entry *session.Entry) Lease
	// BeginRelease is Release without the wait: the deletion of the znode has begun when it returns. await
	// waits for that until stop is closed, and returns the error of Release.
	BeginRelease func(l Lease) (await func(stop <-chan struct{}) error)
}

var registered any //nolint:gochecknoglobals // written once, while package recipes is initialised

// Register is for package recipes alone, which calls it once.
func Register[Client, Lease any](parts Parts[Client, Lease]) { registered = parts }

// Open returns what was registered. It panics for other types than those of Register.
func Open[Client, Lease any]() Parts[Client, Lease] { return registered.(Parts[Client, Lease]) }
