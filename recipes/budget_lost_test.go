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

// A create whose answer is lost again and again makes one znode, at the last byte of a session's budget too: it is repeated only
// after a search behind a sync has shown that the attempt before was not executed. The server never has more than the limit, and
// nobody is refused.
func TestLostAnswersAtTheBoundary(t *testing.T) {
	const times = 4
	cost := costOf("/a", "lock-")
	both := func(drop func(op zktest.Op, n int, sessions ...int64) func()) {
		drop(zktest.OpCreate2, times)
		drop(zktest.OpCreate, times) // of an adopted connection
	}
	for name, lose := range map[string]func(b *bubble.Bubble, client *recipes.Client){
		"request": func(b *bubble.Bubble, _ *recipes.Client) { both(b.Srv.DropRequest) },
		"reply":   func(b *bubble.Bubble, _ *recipes.Client) { both(b.Srv.DropReply) },
		"answer":  func(b *bubble.Bubble, _ *recipes.Client) { b.Srv.DropAnswer(zktest.OpCreate2, times) }, // zk.Conn would wait for ever
		"search": func(b *bubble.Bubble, _ *recipes.Client) {
			both(b.Srv.DropReply)
			b.Srv.DropReply(zktest.OpSync, times)
		},
		"commits after the connection": func(b *bubble.Bubble, client *recipes.Client) {
			b.Srv.SlowCommits(300 * time.Millisecond)
			for i := range times {
				time.AfterFunc(time.Duration(i)*400*time.Millisecond+100*time.Millisecond, func() { b.Srv.Disconnect(client.Conn().SessionID()) })
			}
		},
	} {
		for kind, connect := range map[string]func(b *bubble.Bubble, opts ...recipes.Option) *recipes.Client{
			"own": (*bubble.Bubble).Troubled, "adopted": adopted,
		} {
			if kind == "adopted" && testkit.IsRaced {
				continue // zk.Conn reads its last zxid for setWatches while its reader sets it
			}
			t.Run(name+" "+kind, func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) {
					requireBudget(b, 2*cost)
					client := connect(b, recipes.WithMaxSessionBytes(2*cost))
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
}

// requireAtBoundary acquires a lock with the last bytes of a session's budget, and requires that it is never crossed.
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
