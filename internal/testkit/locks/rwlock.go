package locks

import (
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// ReadWrite returns the two locks of a client on the path.
func ReadWrite(b *bubble.Bubble, client *recipes.Client, opts ...rwlock.Option) (read, write *rwlock.Lock) {
	b.Helper()
	l, err := rwlock.New(client, Path, opts...)
	require.NoError(b, err)
	return l.ReadLock(), l.WriteLock()
}

// Reading picks the read lock.
func Reading(read, _ *rwlock.Lock) *rwlock.Lock { return read }

// Writing picks the write lock.
func Writing(_, write *rwlock.Lock) *rwlock.Lock { return write }

// Under acquires a lock with the context of a lease.
func Under(b *bubble.Bubble, lock *rwlock.Lock, lease *recipes.Lease) *recipes.Lease {
	b.Helper()
	got, err := lock.Acquire(lease.Context())
	require.NoError(b, err)
	return got
}
