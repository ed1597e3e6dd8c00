// Package leftovers collects the deletions that calls leave to the background, for a caller that waits for them later.
//
// The caller gives the calls a context that carries its [List]. Each call adds its deletions with [Track] or [Begin].
package leftovers
