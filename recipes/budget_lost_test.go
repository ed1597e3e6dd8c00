package recipes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A create whose answer is lost again and again makes one znode, even at the last byte of a session's budget. It is repeated
// only after a search behind a sync shows that the previous attempt was not executed. The server never has more than the limit,
// and no call is refused.
func TestLostAnswersAtTheBoundary(t *testing.T) {
	const times = 4
	cost := costOf("/a", "lock-")
	for name, lose := range map[string]func(b *bubble.Bubble, client *recipes.Client){
		"request": func(b *bubble.Bubble, _ *recipes.Client) { b.Srv.DropRequest(zktest.OpCreate2, times) },
		"reply":   func(b *bubble.Bubble, _ *recipes.Client) { b.Srv.DropReply(zktest.OpCreate2, times) },
		"answer":  func(b *bubble.Bubble, _ *recipes.Client) { b.Srv.DropAnswer(zktest.OpCreate2, times) },
		"search": func(b *bubble.Bubble, _ *recipes.Client) {
			b.Srv.DropReply(zktest.OpCreate2, times)
			b.Srv.DropReply(zktest.OpSync, times)
		},
		"commits after the connection": func(b *bubble.Bubble, client *recipes.Client) {
			b.Srv.SlowCommits(300 * time.Millisecond)
			for i := range times {
				time.AfterFunc(time.Duration(i)*400*time.Millisecond+100*time.Millisecond, func() { b.Srv.Disconnect(client.Conn().SessionID()) })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				requireBudget(b, 2*cost)
				client := b.Troubled(recipes.WithMaxSessionBytes(2 * cost))
				held := bubble.Acquire(b, mutexOn(b, client, "/h").Acquire)
				b.Release(bubble.Acquire(b, mutexOn(b, client, "/a").Acquire))
				lose(b, client)
				requireAtBoundary(b, client, 2*cost)
				b.Release(held)
				require.Empty(b, ephemerals(b.Srv, "/", map[int64]int{}))
			})
		})
	}
}

// requireAtBoundary acquires a lock with the last bytes of a session's budget, and requires that the client never
// crosses the limit.
func requireAtBoundary(b *bubble.Bubble, client *recipes.Client, limit int) {
	b.Helper()
	done := bubble.Start(b.Context(), mutexOn(b, client, "/a").Acquire)
	step := testkit.Shorter(time.Millisecond, 10*time.Millisecond)
	for range 20 * time.Second / step {
		bubble.Pass(step)
		for _, bytes := range ephemerals(b.Srv, "/", map[int64]int{}) {
			require.LessOrEqual(b, bytes, limit)
		}
	}
	requireFull(b, mutexOn(b, client, "/z").Acquire)
	b.Release(bubble.Granted(b, done))
}
