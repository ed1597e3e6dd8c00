package recipes_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// tried is a lock in two roles: wait is an acquisition behind a holder, and try is a TryAcquire that only a leftover of that
// wait can refuse.
type tried struct {
	hold, wait, try func(context.Context) (bubble.Holder, error)
}

func asHolder[L bubble.Holder](acquire func(context.Context) (L, error)) func(context.Context) (bubble.Holder, error) {
	return func(ctx context.Context) (bubble.Holder, error) {
		lease, err := acquire(ctx)
		if err != nil {
			return nil, err
		}
		return lease, nil
	}
}

// allTried are the locks of a client, whose holder is another client where the lock is exclusive.
func allTried(b *bubble.Bubble, own, other *recipes.Client) map[string]tried {
	b.Helper()
	all := map[string]tried{}
	exclusive := func(name string, lockOf func(*recipes.Client) multilock.Locker) {
		mine := lockOf(own)
		all[name] = tried{asHolder(lockOf(other).Acquire), asHolder(mine.Acquire), asHolder(mine.TryAcquire)}
	}
	exclusive("mutex", func(c *recipes.Client) multilock.Locker {
		m, err := mutex.New(c, "/after/mutex")
		require.NoError(b, err)
		return m
	})
	exclusive("cohort", func(c *recipes.Client) multilock.Locker {
		m, err := mutex.New(c, "/after/cohort", mutex.WithCohort(mutex.Cohort{Linger: time.Second}))
		require.NoError(b, err)
		return m
	})
	exclusive("write lock", func(c *recipes.Client) multilock.Locker {
		l, err := rwlock.New(c, "/after/rw")
		require.NoError(b, err)
		return l.WriteLock()
	})
	multi := func(c *recipes.Client) *multilock.InterProcessMultiLock {
		l, err := multilock.NewMutexes(c, []string{"/after/a", "/after/b"})
		require.NoError(b, err)
		return l
	}
	all["multilock"] = tried{asHolder(multi(other).Acquire), asHolder(multi(own).Acquire), asHolder(multi(own).TryAcquire)}
	rw, err := rwlock.New(own, "/after/rw2")
	require.NoError(b, err)
	all["read lock behind a writer"] = tried{asHolder(rw.ReadLock().Acquire), asHolder(rw.WriteLock().Acquire), asHolder(rw.ReadLock().TryAcquire)}
	s, err := semaphore.New(own, "/after/semaphore", 2)
	require.NoError(b, err)
	all["semaphore"] = tried{
		asHolder(s.Acquire),
		func(ctx context.Context) (bubble.Holder, error) {
			_, err := s.AcquireN(ctx, 2)
			return nil, err
		},
		asHolder(s.TryAcquire),
	}
	return all
}

// isShared reports whether the try succeeds beside the holder.
func isShared(name string) bool { return name == "semaphore" || name == "read lock behind a writer" }

// A TryAcquire right after an ended wait of the same client is not refused by the znode of that wait, after a timeout at any
// step of the wait, for any latency.
func TestTryRightAfterATimedOutWait(t *testing.T) {
	const latency = 20 * time.Millisecond
	bubble.Run(t, func(b *bubble.Bubble) {
		own, other := b.Client(recipes.WithSessionTimeout(time.Hour)), b.Client(recipes.WithSessionTimeout(time.Hour))
		b.Srv.Delay(zktest.OpAny, latency, own.Conn().SessionID())
		for name, lock := range allTried(b, own, other) {
			for patience := 5 * time.Millisecond; patience < 10*latency; patience += latency / 2 {
				at := fmt.Sprintf("%s, %v", name, patience)
				held, err := lock.hold(b.Context())
				require.NoError(b, err, at)
				ctx, cancel := context.WithTimeout(b.Context(), patience)
				_, err = lock.wait(ctx)
				cancel()
				require.ErrorIs(b, err, context.DeadlineExceeded, at)
				if !isShared(name) {
					b.Release(held)
				}
				got, err := lock.try(b.Context())
				require.NoError(b, err, at)
				b.Release(got)
				if isShared(name) {
					b.Release(held)
				}
				bubble.Pass(2 * time.Second)
			}
		}
	})
}

// The same if the connection breaks when the wait ends, or before, so that the deletion of its znode has to be sent again, in the
// background.
func TestTryAfterAWaitThatEndedInAnOutage(t *testing.T) {
	for _, outage := range []time.Duration{time.Second, 25 * time.Second} {
		bubble.Run(t, func(b *bubble.Bubble) {
			own, other := b.Troubled(recipes.WithSessionTimeout(time.Minute)), b.Client(recipes.WithSessionTimeout(time.Hour))
			for name, lock := range allTried(b, own, other) {
				if isShared(name) {
					continue // the holder has no connection either
				}
				at := fmt.Sprintf("%s, %v", name, outage)
				held, err := lock.hold(b.Context())
				require.NoError(b, err, at)
				ctx, cancel := context.WithCancel(b.Context())
				waiting := bubble.Waiting(b, ctx, lock.wait)
				over := b.Outage()
				cancel()
				require.ErrorIs(b, bubble.Receive(b, waiting).Err, context.Canceled, at)
				b.Release(held)
				got := bubble.Start(b.Context(), lock.try)
				bubble.Pass(min(outage, 9*time.Second))
				over()
				result := bubble.Receive(b, got)
				require.NoError(b, result.Err, at)
				b.Release(result.Lease)
				bubble.Pass(time.Minute)
			}
		})
	}
}

// A permit that was released in an outage may still have its znode. A TryAcquire of the same client waits for the end of its
// deletion, whether or not other clients have permits ahead of it, and is not refused by it.
func TestTryWhileAnOwnPermitIsDeleted(t *testing.T) {
	for name, try := range map[string]func(context.Context, *semaphore.InterProcessSemaphore) ([]*recipes.Lease, error){
		"one": func(ctx context.Context, s *semaphore.InterProcessSemaphore) ([]*recipes.Lease, error) {
			lease, err := s.TryAcquire(ctx)
			return []*recipes.Lease{lease}, err
		},
		"two": func(ctx context.Context, s *semaphore.InterProcessSemaphore) ([]*recipes.Lease, error) {
			return s.TryAcquireN(ctx, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				own, other := b.Troubled(recipes.WithSessionTimeout(time.Minute)), b.Client(recipes.WithSessionTimeout(time.Hour))
				semaphoreOf := func(c *recipes.Client) *semaphore.InterProcessSemaphore {
					s, err := semaphore.New(c, "/after/permits", 3)
					require.NoError(b, err)
					return s
				}
				first, err := semaphoreOf(other).Acquire(b.Context())
				require.NoError(b, err)
				s := semaphoreOf(own)
				mine, err := s.AcquireN(b.Context(), 2)
				require.NoError(b, err)
				over := b.Outage()
				for _, lease := range mine {
					ended := bubble.Start(b.Context(), func(context.Context) (bubble.Holder, error) { return nil, lease.Release() })
					defer func() { _ = bubble.Receive(b, ended) }()
				}
				bubble.Pass(8 * time.Second)
				got := make(chan error, 1)
				var leases []*recipes.Lease
				go func() { // joined below
					var err error
					leases, err = try(b.Context(), s)
					got <- err
				}()
				bubble.Pass(time.Second)
				b.Srv.DropRequest(zktest.OpDelete, 2, own.Conn().SessionID()) // so that the deletions take longer than the listing
				over()
				require.NoError(b, <-got)
				for _, lease := range leases {
					require.NoError(b, lease.Release())
				}
				require.NoError(b, first.Release())
			})
		})
	}
}
