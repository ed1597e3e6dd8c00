package cohort_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func attemptRevoke(f *locks.Fixture, path string) {
	f.Helper()
	require.NoError(f, revoke.New(f.Client()).AttemptRevoke(f.Context(), path))
	bubble.Pass(bubble.Moment)
}

// A loss ends the current lease with all its re-entries. The callers inside continue with a new znode.
func TestCohortLoss(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(f *locks.Fixture, client *recipes.Client, path string)
		opts []recipes.Option
		want error
	}{
		"expired":   {func(f *locks.Fixture, client *recipes.Client, _ string) { f.ExpireUnheard(client) }, nil, recipes.ErrSessionLost},
		"deleted":   {func(f *locks.Fixture, _ *recipes.Client, path string) { f.Srv.Delete(path) }, nil, recipes.ErrNodeDeleted},
		"suspended": {func(f *locks.Fixture, _ *recipes.Client, _ string) { f.Outage()() }, []recipes.Option{recipes.WithErrorPolicy(recipes.StandardErrorPolicy)}, recipes.ErrSuspended},
	} {
		locks.Run(t, func(f *locks.Fixture) {
			client := f.Troubled(c.opts...)
			m := cohortOf(f, client, mutex.Cohort{})
			before := bubble.Acquire(f.T, m.Acquire)
			holder := waitInside(f, f.Context(), m)
			require.NoError(f, before.Release())
			lease := bubble.Granted(f, holder)
			inner, err := m.Acquire(lease.Context())
			require.NoError(f, err)
			waiter, late := waitInside(f, f.Context(), m), waitInside(f, f.Context(), m)
			c.lose(f, client, lease.Path())
			require.ErrorIs(f, f.Cause(lease), c.want, name)
			require.ErrorIs(f, f.Cause(inner), c.want, name)
			next := bubble.Granted(f, waiter)
			require.Greater(f, next.FencingToken(), lease.FencingToken())
			require.ErrorIs(f, lease.Release(), c.want, name)
			require.ErrorIs(f, inner.Release(), c.want, name)
			_, err = m.Acquire(lease.Context())
			require.ErrorIs(f, err, c.want, name)
			bubble.Pass(bubble.Moment)
			f.Stands(next)
			require.Empty(f, late)
			require.NoError(f, next.Release())
			require.NoError(f, bubble.Granted(f, late).Release())
			require.Empty(f, f.Contenders())
		})
	}
}

// A caller that gives up leaves nothing, and neither loses nor takes the place of the others.
func TestCohortCancel(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Client(), mutex.Cohort{})
		lease := bubble.Acquire(f.T, m.Acquire)
		first := waitInside(f, f.Context(), m)
		ctx, cancel := context.WithTimeoutCause(f.Context(), time.Minute, locks.ErrWork)
		defer cancel()
		gone, last := waitInside(f, ctx, m), waitInside(f, f.Context(), m)
		got := bubble.Receive(f, gone)
		var wait *recipes.WaitError
		require.ErrorAs(f, got.Err, &wait)
		require.ErrorIs(f, got.Err, context.DeadlineExceeded)
		require.ErrorIs(f, got.Err, locks.ErrWork)
		require.Equal(f, 3, wait.Position)
		require.Equal(f, lease.Path(), wait.Holder.Path)
		require.Equal(f, time.Minute, wait.Waited)
		require.Len(f, f.Contenders(), 1)
		require.NoError(f, lease.Release())
		require.NoError(f, bubble.Granted(f, first).Release())
		require.NoError(f, bubble.Granted(f, last).Release())
		require.Empty(f, f.Contenders())
		cancel()
		_, err := m.Acquire(ctx)
		require.ErrorAs(f, err, &wait, "an ended context")
	})
}

// The lock is passed to a caller whose context just ended, before the caller gives up. The next caller gets it. The
// two events are often close enough that the caller is first.
func TestCohortCancelBeforeAPass(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Client(), mutex.Cohort{})
		for range 100 {
			lease := bubble.Acquire(f.T, m.Acquire)
			ctx, cancel := context.WithCancelCause(f.Context())
			gone, last := waitInside(f, ctx, m), waitInside(f, f.Context(), m)
			cancel(locks.ErrWork)
			require.NoError(f, lease.Release())
			got := bubble.Receive(f, gone)
			var wait *recipes.WaitError
			require.ErrorAs(f, got.Err, &wait)
			require.ErrorIs(f, got.Err, locks.ErrWork)
			require.Positive(f, wait.Position)
			require.NoError(f, bubble.Granted(f, last).Release())
		}
		require.Empty(f, f.Contenders())
	})
}

// Callers that gave up are not counted among the waiters ahead.
func TestCohortForgetsWhoHasLeft(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		m := cohortOf(f, f.Client(), mutex.Cohort{})
		stays := f.Waiting(f.Context(), m)
		for range 50 {
			ctx, cancel := context.WithTimeout(f.Context(), time.Second)
			got := bubble.Receive(f, bubble.Start(ctx, m.Acquire))
			cancel()
			var wait *recipes.WaitError
			require.ErrorAs(f, got.Err, &wait)
			require.Equal(f, 3, wait.Position, "behind the holder and one caller")
		}
		require.NoError(f, holder.Release())
		require.NoError(f, bubble.Granted(f, stays).Release())
		require.Empty(f, f.Contenders())
	})
}

// While the cohort waits in the queue, its znode stays until the last caller gives up.
func TestCohortCancelInTheQueue(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		m := cohortOf(f, f.Client(), mutex.Cohort{})
		ctx, cancel := context.WithCancel(f.Context())
		first := f.Waiting(ctx, m)
		second, stop := context.WithTimeout(f.Context(), time.Minute)
		defer stop()
		waiter := waitInside(f, second, m)
		place := f.Contenders()[1]
		cancel()
		require.ErrorIs(f, bubble.Receive(f, first).Err, context.Canceled)
		bubble.Pass(bubble.Moment)
		require.Equal(f, place, f.Contenders()[1], "another caller waits")
		got := bubble.Receive(f, waiter)
		var wait *recipes.WaitError
		require.ErrorAs(f, got.Err, &wait)
		require.Equal(f, 2, wait.Position, "the first has left")
		require.Equal(f, holder.Path(), wait.Holder.Path)
		bubble.Pass(bubble.Moment)
		require.Len(f, f.Contenders(), 1, "nobody waits inside")

		next := f.Waiting(f.Context(), m)
		require.NoError(f, holder.Release())
		require.NoError(f, bubble.Granted(f, next).Release())
		require.Empty(f, f.Contenders())
	})
}

// A cancellation at every moment of an Acquire whose requests take 100 ms each. The others get the lock, and no znode
// is left.
func TestCohortCancelAtEveryMoment(t *testing.T) {
	for at := time.Duration(0); at < 2*time.Second; at += 50 * time.Millisecond {
		locks.Run(t, func(f *locks.Fixture) {
			holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
			f.Srv.Delay(zktest.OpAny, 100*time.Millisecond)
			time.AfterFunc(time.Second, func() { _ = holder.Release() })
			m := cohortOf(f, f.Troubled(), mutex.Cohort{})
			ctx, cancel := context.WithTimeout(f.Context(), at)
			defer cancel()
			gone := bubble.Start(ctx, m.Acquire)
			synctest.Wait()
			stays := bubble.Start(f.Context(), m.Acquire)
			if got := bubble.Receive(f, gone); got.Err == nil {
				require.NoError(f, got.Lease.Release())
			} else {
				require.ErrorIs(f, got.Err, context.DeadlineExceeded)
			}
			require.NoError(f, bubble.Granted(f, stays).Release())
			bubble.Pass(time.Second)
			require.Empty(f, f.Contenders(), "cancelled after %v", at)
		})
	}
}

// A try fails at once, without a request, while a caller inside holds or waits.
func TestCohortTry(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := cohortOf(f, f.Client(), mutex.Cohort{})
		lease, err := m.TryAcquire(f.Context())
		require.NoError(f, err)
		log := f.Srv.Observe()
		_, err = m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		require.Zero(f, log.Count())
		waiter := waitInside(f, f.Context(), m)
		require.NoError(f, lease.Release())
		lease = bubble.Granted(f, waiter)
		_, err = m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		require.NoError(f, lease.Release())

		holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		_, err = m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		require.Len(f, f.Contenders(), 1)
		waiter = f.Waiting(f.Context(), m)
		log = f.Srv.Observe()
		_, err = m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired, "a caller inside is ahead")
		require.Zero(f, log.Count())
		require.NoError(f, holder.Release())
		require.NoError(f, bubble.Granted(f, waiter).Release())
		require.Empty(f, f.Contenders())
	})
}

// An Acquire during the query of a try waits for that query, and then gets the lock.
func TestCohortAcquireDuringATry(t *testing.T) {
	for _, isFree := range []bool{true, false} {
		locks.Run(t, func(f *locks.Fixture) {
			client := f.Troubled()
			m := cohortOf(f, client, mutex.Cohort{})
			require.NoError(f, bubble.Acquire(f.T, m.Acquire).Release())
			var holder *recipes.Lease
			if !isFree {
				holder = bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
			}
			f.Srv.Delay(zktest.OpAny, time.Second, client.Conn().SessionID())
			tried := make(chan bubble.Outcome[*recipes.Lease], 1)
			go func() { // ends with the try
				lease, err := m.TryAcquire(f.Context())
				tried <- bubble.Outcome[*recipes.Lease]{Lease: lease, Err: err, At: time.Now()}
			}()
			synctest.Wait()
			waiter := bubble.Start(f.Context(), m.Acquire)
			got := <-tried
			if isFree {
				require.NoError(f, got.Err)
				synctest.Wait()
				require.Empty(f, waiter)
				require.NoError(f, got.Lease.Release())
			} else {
				require.ErrorIs(f, got.Err, recipes.ErrNotAcquired)
				require.NoError(f, holder.Release())
			}
			require.NoError(f, bubble.Granted(f, waiter).Release())
			require.Empty(f, f.Contenders())
		})
	}
}

// A revocation ends the tenure after the present lease, whose listener is called.
func TestCohortRevocation(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		heard := make(chan string, 8)
		m := f.Mutex(client, mutex.WithCohort(mutex.Cohort{}),
			mutex.WithRevocationListener(func(lease *recipes.Lease) { heard <- lease.Path() }))
		before := bubble.Acquire(f.T, m.Acquire)
		waiter := waitInside(f, f.Context(), m)
		require.NoError(f, before.Release())
		lease := bubble.Granted(f, waiter)
		waiter = waitInside(f, f.Context(), m)
		attemptRevoke(f, lease.Path())
		<-lease.Revoked()
		require.Equal(f, lease.Path(), <-heard)
		f.Stands(lease)
		require.NoError(f, lease.Release())
		next := bubble.Granted(f, waiter)
		require.NotEqual(f, lease.Path(), next.Path())
		require.Greater(f, next.FencingToken(), lease.FencingToken())
		select {
		case <-next.Revoked():
			require.Fail(f, "nobody has asked for this one")
		default:
		}
		require.NoError(f, next.Release())
		bubble.Pass(bubble.Moment)
		require.Empty(f, heard)
	})
}

// The first caller gets a revocation that arrived while the cohort was in the queue.
func TestCohortRevocationInTheQueue(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		m := cohortOf(f, f.Client(), mutex.Cohort{})
		first := f.Waiting(f.Context(), m)
		second := waitInside(f, f.Context(), m)
		attemptRevoke(f, f.Contenders()[1])
		require.NoError(f, holder.Release())
		lease := bubble.Granted(f, first)
		bubble.Pass(bubble.Moment)
		<-lease.Revoked()
		require.NoError(f, lease.Release())
		next := bubble.Granted(f, second)
		require.Greater(f, next.FencingToken(), lease.FencingToken())
		require.NoError(f, next.Release())
	})
}

// Participants shows the cohort as one, with how many wait inside.
func TestCohortParticipants(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		m := f.Mutex(client, mutex.WithCohort(mutex.Cohort{}), mutex.WithID("web-3"))
		other := f.Mutex(f.Client(), mutex.WithID("web-4"))
		ids := func(m *mutex.InterProcessMutex) (ids []string) {
			all, err := m.Participants(f.Context())
			require.NoError(f, err)
			for i, p := range all {
				require.Equal(f, i == 0, p.Leader)
				ids = append(ids, p.ID)
			}
			return ids
		}
		lease := bubble.Acquire(f.T, m.Acquire)
		require.Equal(f, []string{"web-3"}, ids(m))
		waiters := []<-chan bubble.Outcome[*recipes.Lease]{waitInside(f, f.Context(), m), waitInside(f, f.Context(), m)}
		remote := f.Waiting(f.Context(), other)
		require.Equal(f, []string{"web-3 (+2 inside)", "web-4"}, ids(m))
		require.Equal(f, []string{"web-3", "web-4"}, ids(other), "known to the client of the cohort alone")
		attemptRevoke(f, lease.Path())
		require.Equal(f, []string{"", "web-4"}, ids(m))
		require.NoError(f, lease.Release())
		got := bubble.Granted(f, remote)
		bubble.Pass(bubble.Moment)
		require.Equal(f, []string{"web-4", "web-3 (+2 inside)"}, ids(m))
		require.NoError(f, got.Release())
		require.NoError(f, bubble.Granted(f, waiters[0]).Release())
		require.NoError(f, bubble.Granted(f, waiters[1]).Release())
	})
}

// Callers inside get the error of the cohort's contender.
func TestCohortThatMayNotJoin(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		f.Srv.Put("/locks", nil)
		f.Srv.Put(locks.Path, nil)
		_, err := f.Client().Conn().SetACL(locks.Path, zk.WorldACL(zk.PermRead), -1)
		require.NoError(f, err)
		m := cohortOf(f, f.Client(), mutex.Cohort{})
		waiters := []<-chan bubble.Outcome[*recipes.Lease]{bubble.Start(f.Context(), m.Acquire), bubble.Start(f.Context(), m.Acquire)}
		for _, waiter := range waiters {
			got := bubble.Receive(f, waiter)
			require.ErrorIs(f, got.Err, zk.ErrNoAuth)
			require.ErrorContains(f, got.Err, locks.Path)
		}
	})
}

// Close ends leases and waits inside.
func TestCohortClose(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Hour} {
		locks.Run(t, func(f *locks.Fixture) {
			client := f.Client()
			m := cohortOf(f, client, mutex.Cohort{Linger: linger})
			lease := bubble.Acquire(f.T, m.Acquire)
			waiters := []<-chan bubble.Outcome[*recipes.Lease]{waitInside(f, f.Context(), m), waitInside(f, f.Context(), m)}
			require.NoError(f, client.Close())
			require.ErrorIs(f, context.Cause(lease.Context()), recipes.ErrClosed)
			for _, waiter := range waiters {
				require.ErrorIs(f, bubble.Receive(f, waiter).Err, recipes.ErrClosed)
			}
			require.ErrorIs(f, lease.Release(), recipes.ErrClosed)
			for _, attempt := range []locks.Attempt{m.Acquire, m.TryAcquire} {
				_, err := attempt(f.Context())
				require.ErrorIs(f, err, recipes.ErrClosed)
			}
			require.Empty(f, f.Contenders())
		})
	}
}

// Without a connection, waiters in other clients are unknown, so the bounds apply. After that, the next caller waits
// until they are known.
func TestCohortWithoutAConnection(t *testing.T) {
	for _, hasOneCome := range []bool{false, true} {
		locks.Run(t, func(f *locks.Fixture) {
			m := cohortOf(f, f.Troubled(recipes.WithSessionTimeout(time.Minute)), mutex.Cohort{MaxPasses: 2, MaxTenure: time.Hour})
			lease := bubble.Acquire(f.T, m.Acquire)
			var waiters []<-chan bubble.Outcome[*recipes.Lease]
			for range 5 {
				waiters = append(waiters, waitInside(f, f.Context(), m))
			}
			over := f.Outage()
			var remote <-chan bubble.Outcome[*recipes.Lease]
			if hasOneCome {
				remote = f.Waiting(f.Context(), f.Mutex(f.Client()))
			}
			for _, waiter := range waiters[:2] {
				go func(lease *recipes.Lease) { _ = lease.Release() }(lease) // a pass: returns at once
				lease = bubble.Granted(f, waiter)
			}
			require.NoError(f, lease.Release())
			bubble.Pass(time.Second)
			require.Empty(f, waiters[2])
			over()
			if hasOneCome {
				require.NoError(f, bubble.Granted(f, remote).Release())
			}
			next := bubble.Granted(f, waiters[2])
			require.Equal(f, hasOneCome, next.Path() != lease.Path())
			require.NoError(f, next.Release())
			require.NoError(f, bubble.Granted(f, waiters[3]).Release())
			require.NoError(f, bubble.Granted(f, waiters[4]).Release())
			bubble.Pass(bubble.Moment)
			require.Empty(f, f.Contenders())
		})
	}
}

// Do passes the lock on like Acquire, and a cohort is part of a multilock like any mutex.
func TestCohortInDoAndMultilock(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		option := mutex.WithCohort(mutex.Cohort{})
		m, err := mutex.New(client, "/locks/a", option)
		require.NoError(f, err)
		both, err := multilock.NewMutexes(client, []string{"/locks/a", "/locks/b"}, option)
		require.NoError(f, err)
		done := make(chan error, 40)
		inside := 0 // guarded by the lock
		for i := range cap(done) {
			section := func(context.Context) error {
				inside++
				defer func() { inside-- }()
				if bubble.Pause(bubble.Moment); inside != 1 {
					return fmt.Errorf("%d inside", inside)
				}
				return nil
			}
			go func() { // joined through done
				if i%2 == 0 {
					done <- m.Do(f.Context(), func(ctx context.Context, _ *recipes.Lease) error {
						return m.Do(ctx, func(ctx context.Context, _ *recipes.Lease) error { return section(ctx) })
					})
				} else {
					done <- both.Do(f.Context(), func(ctx context.Context, _ *multilock.Lease) error { return section(ctx) })
				}
			}()
		}
		for range cap(done) {
			require.NoError(f, <-done)
		}
		bubble.Pass(bubble.Moment)
		require.Empty(f, f.Srv.Children("/locks/a"))
		require.Empty(f, f.Srv.Children("/locks/b"))
	})
}
