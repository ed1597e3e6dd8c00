package recipe

import (
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// watchWork logs warnings while the function of Do continues after a loss of its lease, until stop is
// called. A lease released by the function itself is not a loss.
func watchWork(lease Lease) (stop func()) {
	return session.WatchWork(lease.Context(), func() *session.Entry {
		for _, part := range partsOf(lease) {
			if entry := private.Entry(part); entry.Loss() != nil {
				return entry
			}
		}
		return nil
	}, nil)
}

// partsOf returns the single leases that a lease of Do consists of.
func partsOf(lease Lease) []*recipes.Lease {
	switch l := lease.(type) {
	case *recipes.Lease:
		return []*recipes.Lease{l}
	case interface{ Leases() []*recipes.Lease }:
		return l.Leases()
	default:
		return nil
	}
}
