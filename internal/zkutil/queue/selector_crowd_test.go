package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// When a leader steps down, one participant wakes up, for any number of participants.
func TestNoHerd(t *testing.T) {
	const changes = 10
	crowd := testkit.Shorter(450, 200) // no more of one client wait with a znode than 500
	if testkit.IsRaced {               // the race detector itself fails now and then with thousands of goroutines
		crowd = 200
	}
	for _, n := range []int{20, crowd} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.ConnectSettled(t, srv)
				leading := make(chan *selector.LeaderSelector, 1)
				for range n {
					var s *selector.LeaderSelector
					s = elections.NewSelector(t, client, func(ctx context.Context, term *recipes.Lease) error {
						leading <- s
						return elections.Idle(ctx, term)
					})
					require.NoError(t, s.Start())
				}
				leader := <-leading
				bubble.Pass(time.Second)
				for range changes {
					log := srv.Observe()
					start := time.Now()
					require.NoError(t, leader.Close())
					leader = <-leading
					bubble.Pass(0)
					require.Equal(t, start, time.Now(), "at once")
					t.Logf("%d participants: %d requests", n, log.Count())
					// A delete; who leads now looks at nothing; and who is behind it reads the list.
					require.LessOrEqual(t, log.Count(), 3)
					log.Stop()
				}
			})
		})
	}
}

// A thousand participants lose their session at once. They join again, with few requests each.
func TestCrowdRejoinsAfterALoss(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		const n = 300
		client := testclient.ConnectSettled(t, srv)
		for range n {
			require.NoError(t, elections.NewSelector(t, client, elections.Idle, selector.WithAutoRequeue()).Start())
		}
		bubble.Pass(time.Second)
		require.Len(t, srv.Children(elections.Path), n)
		log := srv.Observe()
		srv.Expire(elections.SessionOf(client))
		bubble.Pass(5 * time.Second)
		require.Len(t, srv.Children(elections.Path), n)
		t.Logf("%.1f requests each", float64(log.Count())/n)
		require.Less(t, log.Count(), 8*n)
	})
}
