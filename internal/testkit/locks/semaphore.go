package locks

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// The path of the semaphore, and its two directories.
const (
	Semaphore = "/permits/a"
	Turns     = Semaphore + "/locks"
	Permits   = Semaphore + "/leases"
)

// SemaphoreOf returns a client's semaphore.
func SemaphoreOf(b *bubble.Bubble, client *recipes.Client, limit int, opts ...semaphore.Option) *semaphore.InterProcessSemaphore {
	b.Helper()
	s, err := semaphore.New(client, Semaphore, limit, opts...)
	require.NoError(b, err)
	return s
}

// Many returns AcquireN for a number of permits.
func Many(s *semaphore.InterProcessSemaphore, n int) func(context.Context) ([]*recipes.Lease, error) {
	return func(ctx context.Context) ([]*recipes.Lease, error) { return s.AcquireN(ctx, n) }
}

// ReleaseAll releases leases, and fails the test if a release fails.
func ReleaseAll(b *bubble.Bubble, leases []*recipes.Lease) {
	b.Helper()
	for _, lease := range leases {
		b.Release(lease)
	}
}

// RequireNoPermits requires that neither permits nor turns are left.
func RequireNoPermits(b *bubble.Bubble) {
	b.Helper()
	require.Empty(b, b.Queue(Turns))
	require.Empty(b, b.Queue(Permits))
}
