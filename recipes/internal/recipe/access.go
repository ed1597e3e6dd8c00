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
