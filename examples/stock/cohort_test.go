package main

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// Successive buyers of one service share a token. Each claims the row under the same token, and no buyer overwrites
// the sale of another.
func TestBuyersOfACohortShareAToken(t *testing.T) {
	const buyers = 40
	s := newService(t)
	require.NoError(t, s.store.reset(t.Context(), goods, buyers))
	s.guard = lockedInCohort(zkclient.Connect(t, zktest.NewServer(t)))
	tokens := make(chan int64, buyers)
	var crowd sync.WaitGroup
	for range buyers {
		crowd.Go(func() { // joined below
			if token, err := s.sell(t.Context(), goods, rand.Text()); err != nil {
				t.Errorf("no sale: %v", err)
			} else {
				tokens <- token
			}
		})
	}
	crowd.Wait()
	close(tokens)
	different := map[int64]int{}
	for token := range tokens {
		different[token]++
	}
	require.Less(t, len(different), buyers, "the lock was passed on: %v", different)
	requireStore(t, s.store, 0, buyers)
}

// If a buyer's patience ends while it holds the lock, its write still ends before the release. The next buyer has the
// same token, so the database could not refuse a later write.
func TestCohortAbandonsNoWrite(t *testing.T) {
	s := newService(t)
	s.guard = lockedInCohort(zkclient.Connect(t, zktest.NewServer(t)))
	ctx, cancel := context.WithCancel(t.Context())
	s.think = func(ctx context.Context) error {
		cancel()
		return context.Cause(ctx)
	}
	_, err := s.sell(ctx, goods, "ann")
	require.NoError(t, err)
	requireStore(t, s.store, 9, 1)
}
