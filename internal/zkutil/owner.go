package zkutil

import "math"

// IsSession reports whether an ephemeralOwner is a session. Some servers show the marks of containers and of znodes with a TTL as
// owners (EphemeralType).
func IsSession(owner int64) bool {
	const ttl = 0xff // the first byte

	return owner != 0 && owner != math.MinInt64 && uint64(owner)>>56 != ttl //nolint:gosec // a pattern of bits
}
