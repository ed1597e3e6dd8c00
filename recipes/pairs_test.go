package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// blocker returns what excludes a kind of kindsOfLocks.
func blocker(kind string, c *recipes.Client) acquirer {
	switch kind {
	case "read lock":
		return one(made(rwlock.New(c, "/a")).WriteLock().Acquire)
	case "permit":
		return several(3, made(semaphore.New(c, "/a", 3)).AcquireN)
	case "cohort":
		return one(made(mutex.New(c, "/a")).Acquire)
	default:
		return kindsOfLocks()[kind](c)
	}
}

// Waiting is no failure. A waiter that loses its session twice, with a longer wait in between, failed only for a moment
// each time, so no bound of its retry policy applies.
func TestWaitBetweenTwoLossesIsNoFailure(t *testing.T) {
	for bound, policy := range map[string]recipes.RetryPolicy{
		"elapsed":  {MaxElapsed: time.Minute},
		"attempts": {MaxAttempts: 3},
		"both":     {MaxElapsed: time.Minute, MaxAttempts: 3},
	} {
		for kind, lock := range kindsOfLocks() {
			if kind == "mutex, try" || kind == "permits, try" || kind == "multilock, try" {
				continue // they don't wait
			}
			t.Run(bound+", "+kind, func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) {
					held, err := blocker(kind, b.Client())(b.Context())
					require.NoError(b, err)
					client := b.Troubled(recipes.WithRetryPolicy(policy))
					waiter := bubble.Waiting(b, b.Context(), lock(client))
					for range 2 {
						bubble.Pass(2 * time.Minute)
						b.ExpireUnheard(client)
						bubble.Pass(30 * time.Second)
						require.Empty(b, waiter)
					}
					bubble.Pass(2 * time.Minute)
					b.Release(held...)
					b.Release(bubble.Granted(b, waiter)...)
				})
			})
		}
	}
}

// ending is an event that ends a lease, and the resulting cause.
type ending struct {
	happen func(b *bubble.Bubble, client *recipes.Client, lease *recipes.Lease)
	cause  error
}

const longestHold = 10 * time.Second

func endings() map[string]ending {
	return map[string]ending{
		"released": {func(*bubble.Bubble, *recipes.Client, *recipes.Lease) {}, recipes.ErrReleased}, // see playEnds
		"deleted": {func(b *bubble.Bubble, _ *recipes.Client, lease *recipes.Lease) {
			b.Srv.Delete(lease.Path())
		}, recipes.ErrNodeDeleted},
		"expired": {func(b *bubble.Bubble, client *recipes.Client, _ *recipes.Lease) {
			b.ExpireUnheard(client)
			bubble.Pass(time.Second)
		}, recipes.ErrSessionLost},
		"held for too long": {func(*bubble.Bubble, *recipes.Client, *recipes.Lease) {
			bubble.Pass(longestHold)
		}, recipes.ErrMaxHold},
		"closed": {func(b *bubble.Bubble, client *recipes.Client, _ *recipes.Lease) {
			require.NoError(b, client.Close())
		}, recipes.ErrClosed},
	}
}

// Of two events that each end a lease, the first counts, for every second event: for the context, for Release, and for
// the next acquisition, which another client gets without waiting for longer than the session.
func TestFirstOfTwoEndsCounts(t *testing.T) {
	for first, a := range endings() {
		for second, z := range endings() {
			if first == second && first != "released" || first == "closed" && second == "expired" {
				continue // the event can't happen again
			}
			t.Run(first+", then "+second, func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) { playEnds(b, a, z) })
			})
		}
	}
}

func playEnds(b *bubble.Bubble, first, second ending) {
	b.Helper()
	client := b.Troubled()
	lease := bubble.Acquire(b, made(mutex.New(client, "/a", mutex.WithMaxHold(longestHold))).Acquire)
	isReleased := false
	for _, e := range []ending{first, second} {
		e.happen(b, client, lease)
		if errors.Is(e.cause, recipes.ErrReleased) {
			cause := first.cause
			if errors.Is(cause, recipes.ErrMaxHold) { // nothing was lost
				cause = recipes.ErrReleased
			}
			requireReleased(b, lease, cause, isReleased)
			isReleased = true
		}
		bubble.Pass(bubble.Moment)
		require.ErrorIs(b, context.Cause(lease.Context()), first.cause)
	}
	if !isReleased {
		requireReleased(b, lease, first.cause, false)
	}
	require.ErrorIs(b, lease.Release(), recipes.ErrNotHeld)
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	next, err := made(mutex.New(b.Client(), "/a")).Acquire(ctx)
	require.NoError(b, err)
	b.Release(next)
}

// requireReleased releases a lease, and requires the error of its end.
func requireReleased(b *bubble.Bubble, lease *recipes.Lease, cause error, again bool) {
	b.Helper()
	switch err := lease.Release(); {
	case again:
		require.ErrorIs(b, err, recipes.ErrNotHeld)
	case errors.Is(cause, recipes.ErrReleased):
		require.NoError(b, err)
	default:
		require.ErrorIs(b, err, cause)
	}
}

// A request to give a lease back concerns that lease alone. The lease may still be lost afterwards, and its successor was not asked.
func TestRevokedThenLost(t *testing.T) {
	for _, isCohort := range []bool{false, true} {
		t.Run(fmt.Sprint("cohort ", isCohort), func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client, asked := b.Troubled(), 0
				opts := []mutex.Option{mutex.WithRevocationListener(func(*recipes.Lease) { asked++ })}
				if isCohort {
					opts = append(opts, mutex.WithCohort(mutex.Cohort{}))
				}
				m := made(mutex.New(client, "/a", opts...))
				revoker := revoke.New(b.Client())
				for round := 1; round <= 3; round++ {
					lease := bubble.Acquire(b, m.Acquire)
					select {
					case <-lease.Revoked():
						require.FailNow(b, "nobody asked for this one", "round %d", round)
					default:
					}
					for range 2 { // the second request finds the first
						require.NoError(b, revoker.AttemptRevoke(b.Context(), lease.Path()))
						bubble.Pass(bubble.Moment)
					}
					<-lease.Revoked()
					b.Stands(lease)
					require.Equal(b, round, asked)
					b.ExpireUnheard(client)
					require.ErrorIs(b, b.Cause(lease), recipes.ErrSessionLost)
					require.ErrorIs(b, lease.Release(), recipes.ErrSessionLost)
					require.Equal(b, round, asked)
				}
			})
		})
	}
}

// Concurrent calls of the same end do not end it twice: all of them return, and exactly one succeeds.
func TestEndWhileTheSameEndIsUnderWay(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		m := made(mutex.New(client, "/a"))
		lease := bubble.Acquire(b, m.Acquire)
		b.Srv.Freeze()
		results := make(chan error, 3)
		for range 3 {
			go func() { results <- lease.Release() }() // ends with the release
		}
		bubble.Pass(time.Second)
		b.Srv.Heal()
		ends := 0
		for range 3 {
			if err := <-results; err == nil {
				ends++
			} else {
				require.ErrorIs(b, err, recipes.ErrNotHeld)
			}
		}
		require.Equal(b, 1, ends)
		l := made(latch.New(client, "/l"))
		s := made(selector.New(client, "/s", func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return nil }))
		require.NoError(b, l.Start())
		require.NoError(b, s.Start())
		bubble.Pass(bubble.Moment)
		require.True(b, l.HasLeadership() && s.HasLeadership())
		for range 2 {
			go func() { results <- l.Close() }() // ends with the latch
			go func() { results <- s.Close() }() // ends with the selector
		}
		for range 4 {
			require.NoError(b, <-results)
		}
		require.Empty(b, ephemerals(b.Srv, "/", map[int64]int{}))
		for range 3 {
			go func() { results <- client.Close() }() // ends with the client
		}
		for range 3 {
			require.NoError(b, <-results)
		}
	})
}

// The candidate with the highest priority leads in the end, for positive and negative priorities and any order of arrival. Of
// equals the first stays.
func TestHighestPriorityLeads(t *testing.T) {
	const none = 1 << 20
	priorities := []int{-7, -1, 0, 3, none}
	for _, first := range priorities {
		for _, second := range priorities {
			t.Run(fmt.Sprintf("%d, then %d", first, second), func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) {
					start := func(client *recipes.Client, priority int) *latch.LeaderLatch {
						var opts []latch.Option
						if priority != none {
							opts = append(opts, latch.WithPriority(priority))
						}
						l := made(latch.New(client, "/l", opts...))
						require.NoError(b, l.Start())
						bubble.Pass(time.Minute)
						return l
					}
					a := start(b.Client(), first)
					require.True(b, a.HasLeadership())
					z := start(b.Client(), second)
					bubble.Pass(2 * time.Minute)
					yields := first != none && second != none && second > first
					require.Equal(b, yields, z.HasLeadership())
					require.Equal(b, !yields, a.HasLeadership())
					require.NoError(b, a.Close())
					bubble.Pass(time.Minute)
					require.True(b, z.HasLeadership())
					require.NoError(b, z.Close())
				})
			})
		}
	}
}
