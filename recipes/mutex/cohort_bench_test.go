package mutex_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// newCohort returns a lock of a cohort, in a session of its own.
func newCohort(b *testing.B, server *zktest.Server, bounds mutex.Cohort) *mutex.InterProcessMutex {
	b.Helper()
	client, err := recipes.Connect(b.Context(), []string{server.Addr()})
	require.NoError(b, err)
	b.Cleanup(func() { _ = client.Close() })
	m, err := mutex.New(client, "/locks/report", mutex.WithCohort(bounds))
	require.NoError(b, err)
	return m
}

// BenchmarkCohortLinger acquires again while the znode of the last time is still there.
func BenchmarkCohortLinger(b *testing.B) {
	server := zktest.NewServer(b)
	m := newCohort(b, server, mutex.Cohort{Linger: time.Second})
	require.NoError(b, acquireRelease(m))
	requests := server.Observe()
	b.ReportAllocs()
	for b.Loop() {
		if err := acquireRelease(m); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(requests.Count())/float64(b.N), "requests/op")
}

// BenchmarkCohortOf64 acquires one path in 64 goroutines of one client; an op is one acquisition.
func BenchmarkCohortOf64(b *testing.B) {
	server := zktest.NewServer(b)
	benchmarkCrowd(b, server, newCohort(b, server, mutex.Cohort{}), false)
}

// BenchmarkCohortOf64BesideAnother has a plain mutex of another client contend with them, all the time.
func BenchmarkCohortOf64BesideAnother(b *testing.B) {
	server := zktest.NewServer(b)
	benchmarkCrowd(b, server, newCohort(b, server, mutex.Cohort{}), true)
}

// BenchmarkCrowdOf64 has as many goroutines without a cohort.
func BenchmarkCrowdOf64(b *testing.B) {
	server := zktest.NewServer(b)
	benchmarkCrowd(b, server, newContender(b, server), false)
}

func benchmarkCrowd(b *testing.B, server *zktest.Server, m *mutex.InterProcessMutex, isContended bool) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	if isContended {
		other := newContender(b, server)
		group.Go(func() { // until ctx ends
			for ctx.Err() == nil {
				if err := acquireRelease(other); err != nil {
					b.Error(err)
				}
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	turns := make(chan struct{}, b.N)
	for range b.N {
		turns <- struct{}{}
	}
	close(turns)
	var inside sync.WaitGroup
	for range 64 {
		inside.Go(func() { // until there are no more turns
			for range turns {
				if err := acquireRelease(m); err != nil {
					b.Error(err)
				}
			}
		})
	}
	inside.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "acquisitions/s")
}
