package semaphore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// BenchmarkUncontended acquires and releases a free permit. It measures this library, its client and the loopback,
// because the server in this process answers at once, while a real one waits for a disk.
func BenchmarkUncontended(b *testing.B) {
	server := zktest.NewServer(b)
	client, err := recipes.Connect(b.Context(), []string{server.Addr()})
	require.NoError(b, err)
	b.Cleanup(func() { _ = client.Close() })
	s, err := semaphore.New(client, locks.Semaphore, 3)
	require.NoError(b, err)
	turn := func() {
		if err := s.Do(context.Background(), func(context.Context, *recipes.Lease) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	turn() // makes the parents
	requests := server.Observe()
	turn()
	requests.Stop()
	b.ReportAllocs()
	for b.Loop() {
		turn()
	}
	b.ReportMetric(float64(requests.Count()), "requests/op")
}
