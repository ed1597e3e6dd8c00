package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// After any use of a lock, an idle session has no watch, and the client sends nothing but pings for an hour. The lock was held,
// awaited with and without success, tried while held by another client, and lost.
func TestIdleLocksLeaveNothing(t *testing.T) {
	for kind, lock := range kindsOfLocks() {
		t.Run(kind, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client, peer := b.Troubled(), b.Client()
				acquire := lock(client)
				use := func() {
					held, err := acquire(b.Context())
					require.NoError(b, err)
					bubble.Pass(time.Minute)
					b.Release(held...)
				}
				use()
				if kind != "mutex, try" && kind != "permits, try" && kind != "multilock, try" {
					held, err := blocker(kind, peer)(b.Context())
					require.NoError(b, err)
					ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
					_, err = acquire(ctx)
					cancel()
					require.ErrorIs(b, err, context.DeadlineExceeded)
					waiter := bubble.Waiting(b, b.Context(), acquire)
					b.Release(held...)
					b.Release(bubble.Granted(b, waiter)...)
				}
				held, err := acquire(b.Context())
				require.NoError(b, err)
				b.ExpireUnheard(client)
				require.ErrorIs(b, b.Cause(held[0]), recipes.ErrSessionLost)
				for _, lease := range held {
					_ = lease.Release() // lost
				}
				bubble.Pass(time.Minute)
				use()

				bubble.Pass(10 * time.Minute) // unused watches are removed later
				for _, c := range []*recipes.Client{client, peer} {
					at, isAlive := b.Srv.Session(c.Conn().SessionID())
					require.True(b, isAlive)
					require.Zero(b, at.Watches)
				}
				log := b.Srv.Observe()
				bubble.Pass(time.Hour)
				require.Empty(b, bubble.Operations(log))
				require.LessOrEqual(b, log.Count(zktest.OpPing), 2*int(time.Hour/(testclient.SessionTimeout/6)), "more often while it is in use")
				require.Empty(b, ephemerals(b.Srv, "/", map[int64]int{}))
			})
		})
	}
}

// A term that was lost before the leader's function could start, here because of a slow trace, does not count. A selector that
// leads once continues until its function ran.
func TestTermLostBeforeTheFunctionBegan(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		var client *recipes.Client
		terms, calls := 0, 0
		client = b.Troubled(recipes.WithTrace(&recipes.Trace{AcquireEnd: func(_ context.Context, e recipes.AcquireEnd) {
			if e.Err == nil {
				terms++
			}
			if terms == 1 {
				b.Srv.Expire(client.Conn().SessionID())
				bubble.Pause(time.Minute)
			}
		}}))
		s := made(selector.New(client, "/l", func(context.Context, *recipes.Lease) error { calls++; return nil }))
		require.NoError(b, s.Run(b.Context()))
		require.Equal(b, 2, terms)
		require.Equal(b, 1, calls)
	})
}
