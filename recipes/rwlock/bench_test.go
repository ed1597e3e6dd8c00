package rwlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// BenchmarkUncontended acquires and releases a free lock. It measures this library, its client and the loopback,
// because the server in this process answers at once, while a real one waits for a disk.
func BenchmarkUncontended(b *testing.B) {
	for name, pick := range map[string]func(l *rwlock.InterProcessReadWriteLock) *rwlock.Lock{
		"read": (*rwlock.InterProcessReadWriteLock).ReadLock, "write": (*rwlock.InterProcessReadWriteLock).WriteLock,
	} {
		b.Run(name, func(b *testing.B) {
			server := zktest.NewServer(b)
			client, err := recipes.Connect(b.Context(), []string{server.Addr()})
			require.NoError(b, err)
			b.Cleanup(func() { _ = client.Close() })
			l, err := rwlock.New(client, "/locks/prices")
			require.NoError(b, err)
			turn := func() {
				if err := pick(l).Do(context.Background(), nothing); err != nil {
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
		})
	}
}
