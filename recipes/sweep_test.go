package recipes_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// acquirer acquires a lock, of any kind, and returns what is to be released.
type acquirer func(ctx context.Context) (held []bubble.Holder, err error)

func one[L bubble.Holder](acquire func(context.Context) (L, error)) acquirer {
	return func(ctx context.Context) ([]bubble.Holder, error) {
		lease, err := acquire(ctx)
		if err != nil {
			return nil, err
		}
		return []bubble.Holder{lease}, nil
	}
}

func several(n int, acquire func(context.Context, int) ([]*recipes.Lease, error)) acquirer {
	return func(ctx context.Context) (held []bubble.Holder, err error) {
		leases, err := acquire(ctx, n)
		for _, lease := range leases {
			held = append(held, lease)
		}
		return held, err
	}
}

func made[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// kindsOfLocks are all locks, each on paths of its own.
func kindsOfLocks() map[string]func(c *recipes.Client) acquirer {
	paths := []string{"/a", "/b", "/c"}
	return map[string]func(c *recipes.Client) acquirer{
		"mutex":      func(c *recipes.Client) acquirer { return one(made(mutex.New(c, "/a")).Acquire) },
		"mutex, try": func(c *recipes.Client) acquirer { return one(made(mutex.New(c, "/a")).TryAcquire) },
		"cohort": func(c *recipes.Client) acquirer {
			return one(made(mutex.New(c, "/a", mutex.WithCohort(mutex.Cohort{}))).Acquire)
		},
		"read lock":      func(c *recipes.Client) acquirer { return one(made(rwlock.New(c, "/a")).ReadLock().Acquire) },
		"write lock":     func(c *recipes.Client) acquirer { return one(made(rwlock.New(c, "/a")).WriteLock().Acquire) },
		"permit":         func(c *recipes.Client) acquirer { return one(made(semaphore.New(c, "/a", 3)).Acquire) },
		"permits":        func(c *recipes.Client) acquirer { return several(3, made(semaphore.New(c, "/a", 3)).AcquireN) },
		"permits, try":   func(c *recipes.Client) acquirer { return several(3, made(semaphore.New(c, "/a", 3)).TryAcquireN) },
		"permit mutex":   func(c *recipes.Client) acquirer { return one(made(semaphore.NewMutex(c, "/a")).Acquire) },
		"multilock":      func(c *recipes.Client) acquirer { return one(made(multilock.NewMutexes(c, paths)).Acquire) },
		"multilock, try": func(c *recipes.Client) acquirer { return one(made(multilock.NewMutexes(c, paths)).TryAcquire) },
	}
}

// sizes calls try with sessions of all sizes up to that of four and more znodes, in small steps, the smallest first.
func sizes(b *bubble.Bubble, try func(limit int, client *recipes.Client)) {
	for limit := 1; limit <= 5*costOf("/a/leases", "lease-"); limit += testkit.Shorter(3, 17) {
		client := b.Client(recipes.WithMaxSessionBytes(limit))
		try(limit, client)
		require.NoError(b, client.Close())
	}
}

// For every size of a session, each lock is acquired or refused at once. A refusal leaves no znode, so that other clients do
// not wait. A lock granted at one size is granted at each larger size.
func TestAcquiredOrRefusedAtEverySize(t *testing.T) {
	for name, kind := range kindsOfLocks() {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				peer, wasGranted := kind(b.Client()), false
				sizes(b, func(limit int, client *recipes.Client) {
					b.Helper()
					start := time.Now()
					ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
					held, err := kind(client)(ctx)
					cancel()
					require.Less(b, time.Since(start), time.Second, "%d bytes", limit)
					used := ephemerals(b.Srv, "/", map[int64]int{})[client.Conn().SessionID()]
					require.LessOrEqual(b, used, limit)
					if err == nil {
						wasGranted = true
						b.Release(held...)
						return
					}
					require.ErrorIs(b, err, recipes.ErrSessionFull, "%d bytes", limit)
					require.False(b, wasGranted, "%d bytes", limit)
					require.Zero(b, used, "%d bytes", limit)
					held, err = peer(b.Context())
					require.NoError(b, err)
					b.Release(held...)
				})
				require.True(b, wasGranted)
			})
		})
	}
}

// The same holds for a session that already holds locks: a lock that fits is acquired or waits, a lock that does not fit is
// refused, and no peer waits for a turn that can't be used. Waiters are granted when the first holder leaves.
func TestBesideAHoldAtEverySize(t *testing.T) {
	for name, kind := range kindsOfLocks() {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				sizes(b, func(limit int, client *recipes.Client) {
					b.Helper()
					held, err := kind(client)(b.Context())
					if err != nil {
						return
					}
					next := bubble.Start(b.Context(), kind(client))
					bubble.Pass(bubble.Moment)
					used := ephemerals(b.Srv, "/", map[int64]int{})[client.Conn().SessionID()]
					require.LessOrEqual(b, used, limit)
					b.Release(held...)
					got := bubble.Receive(b, next)
					if got.Err == nil {
						b.Release(got.Lease...)
					}
					bubble.Pass(bubble.Moment)
					require.Empty(b, ephemerals(b.Srv, "/", map[int64]int{}), "%d bytes", limit)
				})
			})
		})
	}
}

// A semaphore without room for its permits holds no turn. A peer is served at once, for any number of permits that this client
// holds or asks for.
func TestNoTurnIsHeldWithoutRoom(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		peer := made(semaphore.New(b.Client(), "/a", 100))
		sizes(b, func(limit int, client *recipes.Client) {
			b.Helper()
			permits := made(semaphore.New(client, "/a", 100))
			for _, n := range []int{1, 2, 3} {
				var held []bubble.Holder
				for range 3 { // until one waits or is refused
					ctx, cancel := context.WithCancel(b.Context())
					next := bubble.Start(ctx, several(n, permits.AcquireN))
					bubble.Pass(bubble.Moment)
					beside, err := peer.TryAcquire(b.Context())
					require.NoError(b, err, "%d bytes, %d permits beside %d", limit, n, len(held))
					b.Release(beside)
					cancel()
					held = append(held, bubble.Receive(b, next).Lease...)
				}
				b.Release(held...)
				bubble.Pass(bubble.Moment)
			}
		})
	})
}

// An election without room joins no queue, and its peer leads.
func TestElectionsAtEverySize(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		sizes(b, func(limit int, client *recipes.Client) {
			b.Helper()
			var failures []error
			report := func(err error) { failures = append(failures, err) }
			l := made(latch.New(client, "/l", latch.WithErrorHandler(report)))
			require.NoError(b, l.Start())
			bubble.Pass(bubble.Moment)
			led := make(chan struct{}, 1)
			s := made(selector.New(client, "/s", func(ctx context.Context, _ *recipes.Lease) error {
				led <- struct{}{}
				<-ctx.Done()
				return nil
			}, selector.WithErrorHandler(report)))
			require.NoError(b, s.Start())
			bubble.Pass(bubble.Moment)
			fits := limit / costOf("/l", "latch-")
			require.Equal(b, fits >= 1, l.HasLeadership(), "%d bytes", limit)
			require.LessOrEqual(b, ephemerals(b.Srv, "/", map[int64]int{})[client.Conn().SessionID()], limit)
			require.Equal(b, limit >= costOf("/l", "latch-")+costOf("/s", "lock-") || fits == 0 && limit >= costOf("/s", "lock-"), len(led) == 1, "%d bytes", limit)
			for _, err := range failures {
				require.ErrorIs(b, err, recipes.ErrSessionFull)
			}
			require.Equal(b, l.HasLeadership() && len(led) == 1, len(failures) == 0, fmt.Sprint(limit, failures))
			require.NoError(b, l.Close())
			require.NoError(b, s.Close())
		})
	})
}
