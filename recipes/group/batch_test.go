package group_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// crowd joins many members through one client.
func crowd(b *bubble.Bubble, n int) []*group.Group {
	b.Helper()
	client := b.Client(recipes.WithSessionTimeout(time.Hour))
	all := make([]*group.Group, n)
	for i := range all {
		all[i] = newGroup(b, client, fmt.Sprintf("member-%04d", i))
		require.NoError(b, all[i].Join([]byte("x")))
	}
	for _, g := range all {
		require.NoError(b, g.Await(b.Context()))
	}
	return all
}

// Members and Watch read hundreds of members in a few round trips, initially and after a reconnect, for any latency.
func TestManyMembersAreReadTogether(t *testing.T) {
	const (
		many    = 600
		latency = 50 * time.Millisecond
	)
	bubble.Run(t, func(b *bubble.Bubble) {
		all := crowd(b, many)
		client := b.Troubled(recipes.WithSessionTimeout(time.Hour), distant(b.Srv, latency))
		g := newGroup(b, client, "watcher")
		start := time.Now()
		members, err := g.Members(b.Context())
		require.NoError(b, err)
		require.Len(b, members, many)
		require.LessOrEqual(b, time.Since(start), 6*latency)

		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		start = time.Now()
		lists := g.Watch(ctx)
		require.Len(b, <-lists, many)
		require.LessOrEqual(b, time.Since(start), 6*latency)
		for i := range 5 { // a connection that breaks again and again does not keep the list from being read
			b.Srv.Disconnect(client.Conn().SessionID())
			start = time.Now()
			require.NoError(b, all[i].Leave())
			require.Len(b, <-lists, many-1-i)
			require.LessOrEqual(b, time.Since(start), 2*time.Second, "with a reconnect, whose pauses are random")
		}
		log := b.Srv.Observe()
		require.NoError(b, all[10].Join([]byte("y")))
		changed := <-lists
		require.Equal(b, "y", string(changed[5].Data))
		reads := 0
		for _, r := range log.Requests() {
			if r.Session == client.Conn().SessionID() && r.Op == zktest.OpGetData {
				reads++
			}
		}
		require.Equal(b, 1, reads, "the other members are not read again")
	})
}
