package multilock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// BenchmarkThreeMutexes acquires and releases three free mutexes as one. It measures this library, its client and the
// loopback, because the server in this process answers at once, while a real one waits for a disk.
func BenchmarkThreeMutexes(b *testing.B) {
	server := zktest.NewServer(b)
	client, err := recipes.Connect(b.Context(), []string{server.Addr()})
	require.NoError(b, err)
	b.Cleanup(func() { _ = client.Close() })
	m, err := multilock.NewMutexes(client, all)
	require.NoError(b, err)
	turn := func() {
		if err := m.Do(context.Background(), func(context.Context, *multilock.Lease) error { return nil }); err != nil {
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
