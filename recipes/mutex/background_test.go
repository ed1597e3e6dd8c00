package mutex_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// commitTime is what a commit takes in the tests of a release in the background.
const commitTime = 100 * time.Millisecond

// releasedInBackground returns, by name, what acquires locks whose release does not wait.
func releasedInBackground(b *bubble.Bubble, client *recipes.Client) map[string]*locker {
	plain, err := mutex.New(client, "/plain", mutex.WithBackgroundRelease())
	require.NoError(b, err)
	cohort, err := mutex.New(client, "/cohort", mutex.WithBackgroundRelease(), mutex.WithCohort(mutex.Cohort{}))
	require.NoError(b, err)
	pair, err := rwlock.New(client, "/pair", rwlock.WithBackgroundRelease())
	require.NoError(b, err)
	return map[string]*locker{
		"mutex": {plain.Acquire, plain.TryAcquire}, "cohort": {cohort.Acquire, cohort.TryAcquire},
		"read lock": {pair.ReadLock().Acquire, pair.ReadLock().TryAcquire}, "write lock": {pair.WriteLock().Acquire, pair.WriteLock().TryAcquire},
	}
}

type locker struct {
	acquire, try func(context.Context) (*recipes.Lease, error)
}

// Release returns at once, with the context ended. The same client has the lock again without finding its own znode ahead.
func TestReleaseInBackground(t *testing.T) {
	for _, name := range []string{"mutex", "cohort", "read lock", "write lock"} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				lock := releasedInBackground(b, b.Client())[name]
				b.Srv.SlowCommits(commitTime)
				for range 5 {
					lease, err := lock.try(b.Context())
					require.NoError(b, err)
					startedAt := time.Now()
					require.NoError(b, lease.Release())
					require.Zero(b, time.Since(startedAt))
					require.ErrorIs(b, context.Cause(lease.Context()), recipes.ErrReleased)
					require.ErrorIs(b, lease.Release(), recipes.ErrNotHeld)
				}
			})
		})
	}
}

// Another client is refused until the deletion is committed.
func TestTryAfterAReleaseInBackground(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		lock, other := releasedInBackground(b, b.Client())["mutex"], plainMutex(b, b.Troubled())
		lease := bubble.Acquire(b, lock.acquire)
		b.Srv.SlowCommits(commitTime)
		require.NoError(b, lease.Release())
		require.Len(b, b.Srv.Children("/plain"), 1)
		startedAt := time.Now()
		second := bubble.Acquire(b, other.Acquire)
		require.Equal(b, commitTime, time.Since(startedAt))
		b.Release(second)
	})
}

// A deletion whose answer or request is lost is repeated, as after any other Release.
func TestReleaseInBackgroundMeetsFaults(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"lost request": {Lost: zktest.RequestLost}, "lost reply": {Lost: zktest.ReplyLost}, "refused": {Refusal: zktest.RefuseNoAuth},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				lock := releasedInBackground(b, b.Client())["mutex"]
				lease := bubble.Acquire(b, lock.acquire)
				isFirst := true
				b.Srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Op != zktest.OpDelete || !isFirst {
						return zktest.Fault{}
					}
					isFirst = false
					return fault
				})
				require.NoError(b, lease.Release())
				bubble.Pass(time.Minute)
				require.Empty(b, b.Srv.Children("/plain"))
				b.Release(bubble.Acquire(b, lock.acquire))
			})
		})
	}
}

// Close and Shutdown leave no znode behind, and a lease that was lost says so.
func TestReleaseInBackgroundAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*recipes.Client) error{
		"Close": (*recipes.Client).Close, "Shutdown": func(c *recipes.Client) error { return c.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Client()
				lease := bubble.Acquire(b, releasedInBackground(b, client)["mutex"].acquire)
				b.Srv.SlowCommits(commitTime)
				require.NoError(b, lease.Release())
				require.NoError(b, end(client))
				require.Empty(b, b.Srv.Children("/plain"))
			})
		})
	}
	t.Run("loss", func(t *testing.T) {
		bubble.Run(t, func(b *bubble.Bubble) {
			client := b.Troubled()
			lease := bubble.Acquire(b, releasedInBackground(b, client)["mutex"].acquire)
			b.ExpireUnheard(client)
			require.ErrorIs(b, b.Cause(lease), recipes.ErrSessionLost)
			require.ErrorIs(b, lease.Release(), recipes.ErrSessionLost)
		})
	})
}

// Each mutex of a cohort waits as its own options say, whoever has made the contender join.
func TestReleaseInACohortOfTwoKinds(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		lock := releasedInBackground(b, client)["cohort"]
		plain, err := mutex.New(client, "/cohort", mutex.WithCohort(mutex.Cohort{}))
		require.NoError(b, err)
		for first, second := range map[*locker]*locker{
			lock: {plain.Acquire, plain.TryAcquire}, {plain.Acquire, plain.TryAcquire}: lock,
		} {
			b.Srv.SlowCommits(0)
			lease := bubble.Acquire(b, first.acquire)
			waiting := bubble.Waiting(b, b.Context(), second.acquire)
			require.NoError(b, lease.Release())
			lease = bubble.Granted(b, waiting)
			b.Srv.SlowCommits(commitTime)
			startedAt := time.Now()
			require.NoError(b, lease.Release())
			if second == lock {
				require.Zero(b, time.Since(startedAt))
			} else {
				require.Equal(b, commitTime, time.Since(startedAt))
			}
			bubble.Pass(time.Second)
			require.Empty(b, b.Srv.Children("/cohort"))
		}
	})
}

// In an outage the log names the znode that is left.
func TestReleaseInBackgroundDuringAnOutage(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		var log testkit.Log
		client := b.Troubled(recipes.WithLogger(log.Logger(slog.LevelWarn)))
		lease := bubble.Acquire(b, releasedInBackground(b, client)["mutex"].acquire)
		over := b.Outage()
		require.NoError(b, lease.Release())
		bubble.Pass(30 * time.Second)
		require.Contains(b, log.String(), "znode not deleted yet; retrying")
		require.Contains(b, log.String(), lease.Path())
		over()
		bubble.Pass(time.Minute)
		require.Empty(b, b.Srv.Children("/plain"))
	})
}

func plainMutex(b *bubble.Bubble, client *recipes.Client) *mutex.InterProcessMutex {
	m, err := mutex.New(client, "/plain")
	require.NoError(b, err)
	return m
}
