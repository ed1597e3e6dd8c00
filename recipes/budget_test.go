package recipes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// costOf is what a contender costs: its path, with the uuid and the number, and four bytes for the length of the path.
func costOf(dir, prefix string) int {
	return len(dir+"/_c_01234567-89ab-4def-8123-456789abcdef-"+prefix+"0123456789") + 4
}

// requireOnlyRereads requires that a log has nothing but heartbeats, and reads of these directories and their children.
func requireOnlyRereads(b *bubble.Bubble, log *zktest.Log, dirs ...string) {
	b.Helper()
	for _, r := range log.Requests() {
		if r.Op == zktest.OpMulti {
			continue
		}
		require.Contains(b, []zktest.Op{zktest.OpGetData, zktest.OpExists}, r.Op, r)
		require.Contains(b, dirs, "/"+strings.Split(r.Path, "/")[1], r)
	}
}

// ephemerals is what all ephemeral znodes below a path cost, by their sessions.
func ephemerals(srv *zktest.Server, path string, cost map[int64]int) map[int64]int {
	for _, name := range srv.Children(path) {
		child := strings.TrimSuffix(path, "/") + "/" + name
		if _, stat, ok := srv.Get(child); ok && stat.EphemeralOwner != 0 {
			cost[stat.EphemeralOwner] += len(child) + 4
		}
		ephemerals(srv, child, cost)
	}
	return cost
}

// requireBudget requires that no create of any session crosses the limit, counted at the server.
func requireBudget(b *bubble.Bubble, limit int) {
	b.Srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpCreate2 || r.Op == zktest.OpCreate {
			add := len(r.Path) + 4
			if r.Op == zktest.OpCreate2 {
				add += 10
			}
			if cost := ephemerals(b.Srv, "/", map[int64]int{})[r.Session] + add; cost > limit {
				b.Errorf("%v: the session would have %d bytes of %d", r, cost, limit)
			}
		}
		return zktest.Fault{}
	})
}

func mutexOn(tb testing.TB, client *recipes.Client, path string) *mutex.InterProcessMutex {
	tb.Helper()
	m, err := mutex.New(client, path)
	require.NoError(tb, err)
	return m
}

// requireFull requires that an acquisition is refused at once, without a request.
func requireFull[L any](b *bubble.Bubble, acquire func(context.Context) (L, error)) {
	b.Helper()
	log, start := b.Srv.Observe(), time.Now()
	defer log.Stop()
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	_, err := acquire(ctx)
	require.ErrorIs(b, err, recipes.ErrSessionFull)
	require.ErrorContains(b, err, "open another client")
	require.NotErrorIs(b, err, recipes.ErrNotAcquired)
	require.Equal(b, start, time.Now(), "at once")
	require.Empty(b, bubble.Requests(log))
}

// The boundary is exact to the byte, the namespace included, for each kind of contender.
func TestSessionFullToTheByte(t *testing.T) {
	type acquire = func(context.Context) (*recipes.Lease, error)
	for name, kind := range map[string]struct {
		cost int
		on   func(tb testing.TB, client *recipes.Client, path string) acquire
	}{
		"mutex": {costOf("/ns/a", "lock-"), func(tb testing.TB, client *recipes.Client, path string) acquire {
			tb.Helper()
			return mutexOn(tb, client, path).Acquire
		}},
		"try": {costOf("/ns/a", "lock-"), func(tb testing.TB, client *recipes.Client, path string) acquire {
			tb.Helper()
			return mutexOn(tb, client, path).TryAcquire
		}},
		"read lock": {costOf("/ns/a", "__READ__"), func(tb testing.TB, client *recipes.Client, path string) acquire {
			tb.Helper()
			l, err := rwlock.New(client, path)
			require.NoError(tb, err)
			return l.ReadLock().Acquire
		}},
		"write lock": {costOf("/ns/a", "__WRIT__"), func(tb testing.TB, client *recipes.Client, path string) acquire {
			tb.Helper()
			l, err := rwlock.New(client, path)
			require.NoError(tb, err)
			return l.WriteLock().Acquire
		}},
	} {
		for _, spare := range []int{0, -1} {
			t.Run(fmt.Sprint(name, spare), func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) {
					const many = 5
					limit := many*kind.cost + spare
					requireBudget(b, limit)
					client := b.Client(recipes.WithMaxSessionBytes(limit), recipes.WithNamespace("ns"))
					var held []bubble.Holder
					for i := range many + spare {
						held = append(held, bubble.Acquire(b, kind.on(b, client, fmt.Sprintf("/%d", i))))
					}
					last := kind.on(b, client, "/z")
					if strings.HasSuffix(name, "lock") { // the layout of the path is checked at the first call
						ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
						_, err := last(ctx)
						cancel()
						require.ErrorIs(b, err, recipes.ErrSessionFull)
					}
					requireFull(b, last)
					b.Release(held[0])
					b.Release(bubble.Acquire(b, last))
					b.Release(held[1:]...)
				})
			})
		}
	}
}

// An ended context is reported even if the session is full.
func TestEndedContextInAFullSession(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client(recipes.WithMaxSessionBytes(costOf("/a", "lock-")))
		held := bubble.Acquire(b, mutexOn(b, client, "/a").Acquire)
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		for _, path := range []string{"/a", "/b"} {
			m := mutexOn(b, client, path)
			for _, acquire := range []func(context.Context) (*recipes.Lease, error){m.Acquire, m.TryAcquire} {
				_, err := acquire(ctx)
				var wait *recipes.WaitError
				require.ErrorAs(b, err, &wait)
				require.ErrorIs(b, err, context.Canceled)
			}
		}
		b.Release(held)
	})
}

// A semaphore needs room for its turn's znode and for all permits.
func TestSemaphoreAtTheBoundary(t *testing.T) {
	const permits = 700 // more than may wait on one path
	turn, permit := costOf("/s/locks", "lock-"), costOf("/s/leases", "lease-")
	for _, spare := range []int{0, -1} {
		bubble.Run(t, func(b *bubble.Bubble) {
			limit := turn + permits*permit + spare
			requireBudget(b, limit)
			client := b.Client(recipes.WithMaxSessionBytes(limit))
			s, err := semaphore.New(client, "/s", 1_000_000_000)
			require.NoError(b, err)
			requireTooMany := func(n int) {
				_, err := s.AcquireN(b.Context(), n)
				require.ErrorIs(b, err, recipes.ErrSessionFull)
				_, err = s.TryAcquireN(b.Context(), n)
				require.ErrorIs(b, err, recipes.ErrSessionFull)
			}
			requireTooMany(permits + 1)
			requireTooMany(1_000_000_000)
			if spare < 0 {
				requireTooMany(permits)
				return
			}
			leases, err := s.AcquireN(b.Context(), permits)
			require.NoError(b, err)
			_, err = s.TryAcquire(b.Context())
			require.ErrorIs(b, err, recipes.ErrNotAcquired, "it would have to wait for a permit of its own client")
			next := bubble.Waiting(b, b.Context(), s.Acquire)
			b.Release(leases[0])
			bubble.Granted(b, next)
		})
	}
}

// A latch and a selector call their error handlers once, retry with growing pauses, and lead when there is room.
func TestElectionsInAFullSession(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		limit := costOf("/x", "latch-")
		requireBudget(b, limit)
		client := b.Client(recipes.WithMaxSessionBytes(limit))
		held := bubble.Acquire(b, mutexOn(b, client, "/x").Acquire)
		bubble.Pass(time.Second)
		told, log := make(chan error, 100), b.Srv.Observe()
		handler := func(err error) { told <- err }
		l, err := latch.New(client, "/l", latch.WithErrorHandler(handler))
		require.NoError(b, err)
		require.NoError(b, l.Start())
		led := make(chan struct{}, 1)
		s, err := selector.New(client, "/s", func(context.Context, *recipes.Lease) error {
			led <- struct{}{}
			return nil
		}, selector.WithErrorHandler(handler))
		require.NoError(b, err)
		require.NoError(b, s.Start())
		bubble.Pass(10 * time.Minute)
		require.Len(b, told, 2, "each once")
		for range 2 {
			require.ErrorIs(b, <-told, recipes.ErrSessionFull)
		}
		require.ErrorIs(b, l.Err(), recipes.ErrSessionFull)
		requireOnlyRereads(b, log, "/x")
		require.NoError(b, s.Close())

		b.Release(held)
		bubble.Pass(time.Minute)
		require.True(b, l.HasLeadership())
		require.NoError(b, l.Err())
		require.NoError(b, l.Close())
		require.Empty(b, led)
	})
}

// A holder of the write lock that takes the read lock does not wait for a place, because the contenders with places may wait
// for that holder.
func TestDowngradeInAFullSession(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		limit := 2 * costOf("/rw", "__WRIT__")
		requireBudget(b, limit)
		l, err := rwlock.New(b.Client(recipes.WithMaxSessionBytes(limit)), "/rw")
		require.NoError(b, err)
		writer := bubble.Acquire(b, l.WriteLock().Acquire)
		reader, err := l.ReadLock().Acquire(writer.Context())
		require.NoError(b, err)
		b.Release(reader)
		ctx, cancel := context.WithCancel(b.Context())
		waiting := bubble.Waiting(b, ctx, l.WriteLock().Acquire)
		requireFull(b, func(ctx context.Context) (*recipes.Lease, error) {
			inner, cancel := context.WithCancel(writer.Context())
			defer context.AfterFunc(ctx, cancel)()
			return l.ReadLock().Acquire(inner)
		})
		b.Stands(writer)
		cancel()
		require.ErrorIs(b, bubble.Receive(b, waiting).Err, context.Canceled)
		bubble.Pass(bubble.Moment)
		reader, err = l.ReadLock().Acquire(writer.Context())
		require.NoError(b, err)
		b.Release(writer, reader)
	})
}

// A znode that may exist counts until its deletion is known: after a lost answer, while the client can't ask, and while the
// deletion is unconfirmed.
func TestUncertainZnodesCount(t *testing.T) {
	cost := costOf("/a", "lock-")
	for name, lost := range map[string]zktest.Loss{"executed": zktest.ReplyLost, "not executed": zktest.RequestLost} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				requireBudget(b, cost)
				client := b.Troubled(recipes.WithMaxSessionBytes(cost))
				first, other := mutexOn(b, client, "/a"), mutexOn(b, client, "/b")
				ctx, cancel := context.WithCancel(b.Context())
				isLost := false
				b.Srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Op == zktest.OpCreate2 && !isLost {
						isLost = true
						go b.Srv.Stop(b.Srv.Addr()) // no server can say whether the create was executed
						return zktest.Fault{Lost: lost}
					}
					return zktest.Fault{}
				})
				done := bubble.Start(ctx, first.Acquire)
				bubble.Pass(100 * time.Millisecond)
				requireFull(b, other.Acquire)
				cancel()
				require.ErrorIs(b, bubble.Receive(b, done).Err, context.Canceled)
				bubble.Pass(time.Second)
				requireFull(b, other.Acquire)

				require.NoError(b, b.Srv.Restart(b.Srv.Addr()))
				bubble.Pass(3 * time.Second)
				require.Empty(b, b.Queue("/a"))
				lease := bubble.Acquire(b, other.Acquire)
				over := b.Outage()
				err := lease.Release()
				require.ErrorIs(b, err, recipes.ErrNodeNotDeleted)
				requireFull(b, first.Acquire)
				over()
				bubble.Pass(3 * time.Second)
				b.Release(bubble.Acquire(b, first.Acquire))
			})
		})
	}
}

// The znodes of an ended session don't count, even before the server confirms their deletion.
func TestEndedSessionCostsNothing(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		limit := costOf("/a", "lock-")
		requireBudget(b, limit)
		client := b.Troubled(recipes.WithMaxSessionBytes(limit))
		held := bubble.Acquire(b, mutexOn(b, client, "/a").Acquire)
		b.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete && r.Path == held.Path() {
				return zktest.Fault{Refusal: zktest.RefuseTimeout}
			}
			return zktest.Fault{}
		})
		b.ExpireUnheard(client)
		require.ErrorIs(b, b.Cause(held), recipes.ErrSessionLost)
		bubble.Pass(10 * time.Second)
		b.Release(bubble.Acquire(b, mutexOn(b, client, "/b").Acquire))
	})
}

// A contender that loses its session keeps its place, even if the session was full.
func TestFullSessionExpires(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const many = 10
		limit := many * costOf("/0", "lock-")
		requireBudget(b, limit)
		holder := b.Client()
		client := b.Troubled(recipes.WithMaxSessionBytes(limit))
		var held []bubble.Holder
		var waiting []<-chan bubble.Outcome[*recipes.Lease]
		for i := range many {
			path := fmt.Sprintf("/%d", i)
			held = append(held, bubble.Acquire(b, mutexOn(b, holder, path).Acquire))
			waiting = append(waiting, bubble.Waiting(b, b.Context(), mutexOn(b, client, path).Acquire))
		}
		for range 3 {
			b.ExpireUnheard(client)
			bubble.Pass(10 * time.Second)
			requireFull(b, mutexOn(b, client, "/z").Acquire)
		}
		b.Release(held...)
		for _, done := range waiting {
			b.Release(bubble.Granted(b, done))
		}
		synctest.Wait()
		require.Empty(b, ephemerals(b.Srv, "/", map[int64]int{}))
	})
}
