package semaphore_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where clients without a logger log
	goleak.VerifyTestMain(m)
}

// The path that the tests contend for, its two directories, and the znode of a shared limit.
const (
	path   = "/permits/a"
	locks  = path + "/locks"
	leases = path + "/leases"
	shared = "/limits/a"
)

func semaphoreOf(b *bubble.Bubble, client *recipes.Client, limit int, opts ...semaphore.Option) *semaphore.InterProcessSemaphore {
	b.Helper()
	s, err := semaphore.New(client, path, limit, opts...)
	require.NoError(b, err)
	return s
}

// many is AcquireN for a number of permits.
func many(s *semaphore.InterProcessSemaphore, n int) func(context.Context) ([]*recipes.Lease, error) {
	return func(ctx context.Context) ([]*recipes.Lease, error) { return s.AcquireN(ctx, n) }
}

// releaseAll releases leases, and requires that to succeed.
func releaseAll(b *bubble.Bubble, leases []*recipes.Lease) {
	b.Helper()
	for _, lease := range leases {
		b.Release(lease)
	}
}

// requireEmpty requires that no znode is left.
func requireEmpty(b *bubble.Bubble) {
	b.Helper()
	require.Empty(b, b.Queue(locks))
	require.Empty(b, b.Queue(leases))
}
