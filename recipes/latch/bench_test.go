package latch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// BenchmarkHandover measures the time from Close of the leader to IsLeader of the next one, in another session. It
// measures this library, its client and the loopback, because the server in this process answers at once, while a
// real one waits for a disk.
func BenchmarkHandover(b *testing.B) {
	server := zktest.NewServer(b)
	var clients [2]*recipes.Client
	for i := range clients {
		client, err := recipes.Connect(b.Context(), []string{server.Addr()})
		require.NoError(b, err)
		b.Cleanup(func() { _ = client.Close() })
		clients[i] = client
	}
	leads := make(chan struct{}, 1)
	listener := latch.WithListener(latch.Listener{IsLeader: func(*recipes.Lease) { leads <- struct{}{} }})
	stand := func(i int) *latch.LeaderLatch {
		l, err := latch.New(clients[i%2], "/services/billing", listener)
		require.NoError(b, err)
		require.NoError(b, l.Start())
		return l
	}
	leader := stand(0)
	<-leads
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		b.StopTimer()
		next := stand(i + 1)
		<-next.Decided()
		b.StartTimer()
		if err := leader.Close(); err != nil {
			b.Fatal(err)
		}
		<-leads
		leader = next
	}
	b.StopTimer()
	require.NoError(b, leader.Close())
}
