package recipes_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// standBy has a client take part, until the returned function is called.
type standBy func(b *bubble.Bubble, client *recipes.Client) (end func())

var standBys = map[string]standBy{
	"mutex": func(b *bubble.Bubble, client *recipes.Client) func() {
		m, err := mutex.New(client, "/standby")
		require.NoError(b, err)
		ctx, cancel := context.WithCancel(b.Context())
		done := bubble.Start(ctx, m.Acquire)
		return func() {
			cancel()
			if got := bubble.Receive(b, done); got.Err == nil {
				b.Release(got.Lease)
			}
		}
	},
	"latch": func(b *bubble.Bubble, client *recipes.Client) func() {
		l, err := latch.New(client, "/standby")
		require.NoError(b, err)
		require.NoError(b, l.Start())
		return func() { require.NoError(b, l.Close()) }
	},
	"selector": func(b *bubble.Bubble, client *recipes.Client) func() {
		s, err := selector.New(client, "/standby", func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return nil })
		require.NoError(b, err)
		require.NoError(b, s.Start())
		return func() { require.NoError(b, s.Close()) }
	},
}

// Of a hundred clients one holds, and 99 stand by. These write a twentieth of a transaction per session timeout at most,
// counted at the server, for any length of time.
func TestStandbysCostNoCommits(t *testing.T) {
	const timeouts = 20
	clients, rounds := testkit.Shorter(100, 25), testkit.Shorter(2, 1)
	for name, begin := range standBys {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Run(t, func(b *bubble.Bubble) {
				log := b.Srv.Observe()
				var ends []func()
				var ids []int64
				for range clients {
					client := b.Client()
					ends, ids = append(ends, begin(b, client)), append(ids, client.Conn().SessionID())
					bubble.Pass(bubble.Moment)
				}
				for round := range rounds {
					start := time.Now()
					bubble.Pass(timeouts * testclient.SessionTimeout)
					holder, standbys := countWrites(log, start, ids[0])
					require.InDelta(b, 6*timeouts, holder, 2, "the holder's heartbeats")
					require.LessOrEqual(b, float64(standbys), 0.05*float64((clients-1)*timeouts))
					b.Logf("round %d: %d writes of %d standbys in %d T", round, standbys, clients-1, timeouts)
				}
				for _, end := range slices.Backward(ends) {
					end()
				}
			})
		})
	}
}

// countWrites returns how many transactions one session, and all others, have cost the quorum since a start.
func countWrites(log *zktest.Log, start time.Time, one int64) (its, others int) {
	writes := []zktest.Op{
		zktest.OpCreate, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpDelete, zktest.OpSetData, zktest.OpMulti,
	}
	for _, r := range log.Requests(writes...) {
		switch {
		case r.Time.Before(start):
		case r.Session == one:
			its++
		default:
			others++
		}
	}
	return its, others
}
