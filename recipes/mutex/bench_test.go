package mutex_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// newContender returns a lock on the common path, in a session of its own.
func newContender(b *testing.B, server *zktest.Server) *mutex.InterProcessMutex {
	b.Helper()
	client, err := recipes.Connect(b.Context(), []string{server.Addr()})
	require.NoError(b, err)
	b.Cleanup(func() { _ = client.Close() })
	m, err := mutex.New(client, "/locks/report")
	require.NoError(b, err)
	return m
}

// acquireRelease is one turn.
func acquireRelease(m *mutex.InterProcessMutex) error {
	lease, err := m.Acquire(context.Background())
	if err != nil {
		return err
	}
	return lease.Release()
}

// BenchmarkUncontended acquires and releases a free lock. It measures this library, its client and the loopback,
// because the server in this process answers at once, while a real one waits for a disk. integration/mutex measures a
// real server, with zk.Lock beside it.
func BenchmarkUncontended(b *testing.B) {
	server := zktest.NewServer(b)
	m := newContender(b, server)
	require.NoError(b, acquireRelease(m)) // makes the parents
	requests := server.Observe()
	require.NoError(b, acquireRelease(m))
	requests.Stop()
	b.ReportAllocs()
	for b.Loop() {
		if err := acquireRelease(m); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(requests.Count()), "requests/op")
}

// BenchmarkContendedBy8 has eight sessions take turns; an op is one turn.
func BenchmarkContendedBy8(b *testing.B) {
	server := zktest.NewServer(b)
	turns, failed := make(chan struct{}), make(chan error, 8)
	var group sync.WaitGroup
	defer group.Wait()
	defer close(turns)
	for range cap(failed) {
		m := newContender(b, server)
		group.Go(func() { // until all turns are taken, or one fails
			for range turns {
				if err := acquireRelease(m); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		select {
		case turns <- struct{}{}:
		case err := <-failed:
			b.Fatal(err)
		}
	}
}

// BenchmarkReenter is an acquisition that needs no server.
func BenchmarkReenter(b *testing.B) {
	m := newContender(b, zktest.NewServer(b))
	lease, err := m.Acquire(b.Context())
	require.NoError(b, err)
	defer func() { require.NoError(b, lease.Release()) }()
	b.ReportAllocs()
	for b.Loop() {
		inner, err := m.Acquire(lease.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := inner.Release(); err != nil {
			b.Fatal(err)
		}
	}
}
