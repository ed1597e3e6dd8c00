package mutex_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func (f *fixture) revoke(path string) {
	f.Helper()
	require.NoError(f, revoke.New(f.client()).AttemptRevoke(f.Context(), path))
	pass(moment)
}

// A loss ends the present lease with all that have re-entered it. The callers inside go on with a new znode.
func TestCohortLoss(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(f *fixture, client *recipes.Client, path string)
		opts []recipes.Option
		want error
	}{
		"expired":   {func(f *fixture, client *recipes.Client, _ string) { f.expireUnheard(client) }, nil, recipes.ErrSessionLost},
		"deleted":   {func(f *fixture, _ *recipes.Client, path string) { f.srv.Delete(path) }, nil, recipes.ErrNodeDeleted},
		"suspended": {func(f *fixture, _ *recipes.Client, _ string) { f.outage()() }, []recipes.Option{recipes.WithErrorPolicy(recipes.StandardErrorPolicy)}, recipes.ErrSuspended},
	} {
		inBubble(t, func(f *fixture) {
			client := f.troubled(c.opts...)
			m := f.cohort(client, mutex.Cohort{})
			before := acquire(f.T, m)
			holder := f.waitInside(f.Context(), m)
			require.NoError(f, before.Release())
			lease := f.granted(holder)
			inner, err := m.Acquire(lease.Context())
			require.NoError(f, err)
			waiter, late := f.waitInside(f.Context(), m), f.waitInside(f.Context(), m)
			c.lose(f, client, lease.Path())
			require.ErrorIs(f, f.cause(lease), c.want, name)
			require.ErrorIs(f, f.cause(inner), c.want, name)
			next := f.granted(waiter)
			require.Greater(f, next.FencingToken(), lease.FencingToken())
			require.ErrorIs(f, lease.Release(), c.want, name)
			require.ErrorIs(f, inner.Release(), c.want, name)
			_, err = m.Acquire(lease.Context())
			require.ErrorIs(f, err, c.want, name)
			pass(moment)
			f.stands(next)
			require.Empty(f, late)
			require.NoError(f, next.Release())
			require.NoError(f, f.granted(late).Release())
			require.Empty(f, f.queue())
		})
	}
}

// A caller that gives up leaves nothing, and neither loses nor takes the place of the others.
func TestCohortCancel(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.cohort(f.client(), mutex.Cohort{})
		lease := acquire(f.T, m)
		first := f.waitInside(f.Context(), m)
		ctx, cancel := context.WithTimeoutCause(f.Context(), time.Minute, errOfTest)
		defer cancel()
		gone, last := f.waitInside(ctx, m), f.waitInside(f.Context(), m)
		got := f.outcome(gone)
		var wait *recipes.WaitError
		require.ErrorAs(f, got.err, &wait)
		require.ErrorIs(f, got.err, context.DeadlineExceeded)
		require.ErrorIs(f, got.err, errOfTest)
		require.Equal(f, 3, wait.Position)
		require.Equal(f, lease.Path(), wait.Holder.Path)
		require.Equal(f, time.Minute, wait.Waited)
		require.Len(f, f.queue(), 1)
		require.NoError(f, lease.Release())
		require.NoError(f, f.granted(first).Release())
		require.NoError(f, f.granted(last).Release())
		require.Empty(f, f.queue())
		cancel()
		_, err := m.Acquire(ctx)
		require.ErrorAs(f, err, &wait, "an ended context")
	})
}

// The lock comes to a caller whose context has just ended, before he has given up: the next one gets it. Often the two
// come so close to each other that he has.
func TestCohortCancelBeforeAPass(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.cohort(f.client(), mutex.Cohort{})
		for range 100 {
			lease := acquire(f.T, m)
			ctx, cancel := context.WithCancelCause(f.Context())
			gone, last := f.waitInside(ctx, m), f.waitInside(f.Context(), m)
			cancel(errOfTest)
			require.NoError(f, lease.Release())
			got := f.outcome(gone)
			var wait *recipes.WaitError
			require.ErrorAs(f, got.err, &wait)
			require.ErrorIs(f, got.err, errOfTest)
			require.Positive(f, wait.Position)
			require.NoError(f, f.granted(last).Release())
		}
		require.Empty(f, f.queue())
	})
}

// Callers that have given up are not counted among those who wait ahead.
func TestCohortForgetsWhoHasLeft(t *testing.T) {
	inBubble(t, func(f *fixture) {
		holder := acquire(f.T, f.mutex(f.client()))
		m := f.cohort(f.client(), mutex.Cohort{})
		stays := f.waiting(f.Context(), m)
		for range 50 {
			ctx, cancel := context.WithTimeout(f.Context(), time.Second)
			got := f.outcome(acquiring(ctx, m))
			cancel()
			var wait *recipes.WaitError
			require.ErrorAs(f, got.err, &wait)
			require.Equal(f, 3, wait.Position, "behind the holder and one caller")
		}
		require.NoError(f, holder.Release())
		require.NoError(f, f.granted(stays).Release())
		require.Empty(f, f.queue())
	})
}

// While the cohort waits in the queue, its znode stays until the last caller has given up.
func TestCohortCancelInTheQueue(t *testing.T) {
	inBubble(t, func(f *fixture) {
		holder := acquire(f.T, f.mutex(f.client()))
		m := f.cohort(f.client(), mutex.Cohort{})
		ctx, cancel := context.WithCancel(f.Context())
		first := f.waiting(ctx, m)
		second, stop := context.WithTimeout(f.Context(), time.Minute)
		defer stop()
		waiter := f.waitInside(second, m)
		place := f.queue()[1]
		cancel()
		require.ErrorIs(f, f.outcome(first).err, context.Canceled)
		pass(moment)
		require.Equal(f, place, f.queue()[1], "another caller waits")
		got := f.outcome(waiter)
		var wait *recipes.WaitError
		require.ErrorAs(f, got.err, &wait)
		require.Equal(f, 2, wait.Position, "the first has left")
		require.Equal(f, holder.Path(), wait.Holder.Path)
		pass(moment)
		require.Len(f, f.queue(), 1, "nobody waits inside")

		next := f.waiting(f.Context(), m)
		require.NoError(f, holder.Release())
		require.NoError(f, f.granted(next).Release())
		require.Empty(f, f.queue())
	})
}

// A cancellation at every moment of an Acquire whose requests take 100 ms each: the others get the lock, and
// nothing is left.
func TestCohortCancelAtEveryMoment(t *testing.T) {
	for at := time.Duration(0); at < 2*time.Second; at += 50 * time.Millisecond {
		inBubble(t, func(f *fixture) {
			holder := acquire(f.T, f.mutex(f.client()))
			f.srv.Delay(zktest.OpAny, 100*time.Millisecond)
			time.AfterFunc(time.Second, func() { _ = holder.Release() })
			m := f.cohort(f.troubled(), mutex.Cohort{})
			ctx, cancel := context.WithTimeout(f.Context(), at)
			defer cancel()
			gone := acquiring(ctx, m)
			synctest.Wait()
			stays := acquiring(f.Context(), m)
			if got := f.outcome(gone); got.err == nil {
				require.NoError(f, got.lease.Release())
			} else {
				require.ErrorIs(f, got.err, context.DeadlineExceeded)
			}
			require.NoError(f, f.granted(stays).Release())
			pass(time.Second)
			require.Empty(f, f.queue(), "cancelled after %v", at)
		})
	}
}

// A try fails at once while somebody inside holds or waits, without a request.
func TestCohortTry(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.cohort(f.client(), mutex.Cohort{})
		lease, err := m.TryAcquire(f.Context())
		require.NoError(f, err)
		log := f.srv.Observe()
		_, err = m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		require.Zero(f, log.Count())
		waiter := f.waitInside(f.Context(), m)
		require.NoError(f, lease.Release())
		lease = f.granted(waiter)
		_, err = m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		require.NoError(f, lease.Release())

		holder := acquire(f.T, f.mutex(f.client()))
		_, err = m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		require.Len(f, f.queue(), 1)
		waiter = f.waiting(f.Context(), m)
		log = f.srv.Observe()
		_, err = m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired, "a caller inside is ahead")
		require.Zero(f, log.Count())
		require.NoError(f, holder.Release())
		require.NoError(f, f.granted(waiter).Release())
		require.Empty(f, f.queue())
	})
}

// An Acquire that comes while a try asks the queue waits for it, and then gets the lock.
func TestCohortAcquireDuringATry(t *testing.T) {
	for _, isFree := range []bool{true, false} {
		inBubble(t, func(f *fixture) {
			client := f.troubled()
			m := f.cohort(client, mutex.Cohort{})
			require.NoError(f, acquire(f.T, m).Release())
			var holder *recipes.Lease
			if !isFree {
				holder = acquire(f.T, f.mutex(f.client()))
			}
			f.srv.Delay(zktest.OpAny, time.Second, client.Conn().SessionID())
			tried := make(chan result, 1)
			go func() { // ends with the try
				lease, err := m.TryAcquire(f.Context())
				tried <- result{lease, err, time.Now()}
			}()
			synctest.Wait()
			waiter := acquiring(f.Context(), m)
			got := <-tried
			if isFree {
				require.NoError(f, got.err)
				synctest.Wait()
				require.Empty(f, waiter)
				require.NoError(f, got.lease.Release())
			} else {
				require.ErrorIs(f, got.err, recipes.ErrNotAcquired)
				require.NoError(f, holder.Release())
			}
			require.NoError(f, f.granted(waiter).Release())
			require.Empty(f, f.queue())
		})
	}
}

// A revocation ends the tenure after the present lease, whose listener is called.
func TestCohortRevocation(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		heard := make(chan string, 8)
		m := f.mutex(client, mutex.WithCohort(mutex.Cohort{}),
			mutex.WithRevocationListener(func(lease *recipes.Lease) { heard <- lease.Path() }))
		before := acquire(f.T, m)
		waiter := f.waitInside(f.Context(), m)
		require.NoError(f, before.Release())
		lease := f.granted(waiter)
		waiter = f.waitInside(f.Context(), m)
		f.revoke(lease.Path())
		<-lease.Revoked()
		require.Equal(f, lease.Path(), <-heard)
		f.stands(lease)
		require.NoError(f, lease.Release())
		next := f.granted(waiter)
		require.NotEqual(f, lease.Path(), next.Path())
		require.Greater(f, next.FencingToken(), lease.FencingToken())
		select {
		case <-next.Revoked():
			require.Fail(f, "nobody has asked for this one")
		default:
		}
		require.NoError(f, next.Release())
		pass(moment)
		require.Empty(f, heard)
	})
}

// A revocation that comes while the cohort waits in the queue is told to the first caller.
func TestCohortRevocationInTheQueue(t *testing.T) {
	inBubble(t, func(f *fixture) {
		holder := acquire(f.T, f.mutex(f.client()))
		m := f.cohort(f.client(), mutex.Cohort{})
		first := f.waiting(f.Context(), m)
		second := f.waitInside(f.Context(), m)
		f.revoke(f.queue()[1])
		require.NoError(f, holder.Release())
		lease := f.granted(first)
		pass(moment)
		<-lease.Revoked()
		require.NoError(f, lease.Release())
		next := f.granted(second)
		require.Greater(f, next.FencingToken(), lease.FencingToken())
		require.NoError(f, next.Release())
	})
}

// Participants shows the cohort as one, with how many wait inside.
func TestCohortParticipants(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
		m := f.mutex(client, mutex.WithCohort(mutex.Cohort{}), mutex.WithID("web-3"))
		other := f.mutex(f.client(), mutex.WithID("web-4"))
		ids := func(m *mutex.InterProcessMutex) (ids []string) {
			all, err := m.Participants(f.Context())
			require.NoError(f, err)
			for i, p := range all {
				require.Equal(f, i == 0, p.Leader)
				ids = append(ids, p.ID)
			}
			return ids
		}
		lease := acquire(f.T, m)
		require.Equal(f, []string{"web-3"}, ids(m))
		waiters := []<-chan result{f.waitInside(f.Context(), m), f.waitInside(f.Context(), m)}
		remote := f.waiting(f.Context(), other)
		require.Equal(f, []string{"web-3 (+2 inside)", "web-4"}, ids(m))
		require.Equal(f, []string{"web-3", "web-4"}, ids(other), "known to the client of the cohort alone")
		f.revoke(lease.Path())
		require.Equal(f, []string{"", "web-4"}, ids(m))
		require.NoError(f, lease.Release())
		got := f.granted(remote)
		pass(moment)
		require.Equal(f, []string{"web-4", "web-3 (+2 inside)"}, ids(m))
		require.NoError(f, got.Release())
		require.NoError(f, f.granted(waiters[0]).Release())
		require.NoError(f, f.granted(waiters[1]).Release())
	})
}

// Whoever waits inside gets the error with which the cohort's contender has failed.
func TestCohortThatMayNotJoin(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.srv.Put("/locks", nil)
		f.srv.Put(lock, nil)
		_, err := f.client().Conn().SetACL(lock, zk.WorldACL(zk.PermRead), -1)
		require.NoError(f, err)
		m := f.cohort(f.client(), mutex.Cohort{})
		waiters := []<-chan result{acquiring(f.Context(), m), acquiring(f.Context(), m)}
		for _, waiter := range waiters {
			got := f.outcome(waiter)
			require.ErrorIs(f, got.err, zk.ErrNoAuth)
			require.ErrorContains(f, got.err, lock)
		}
	})
}

// Close ends leases and waits inside.
func TestCohortClose(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Hour} {
		inBubble(t, func(f *fixture) {
			client := f.client()
			m := f.cohort(client, mutex.Cohort{Linger: linger})
			lease := acquire(f.T, m)
			waiters := []<-chan result{f.waitInside(f.Context(), m), f.waitInside(f.Context(), m)}
			require.NoError(f, client.Close())
			require.ErrorIs(f, context.Cause(lease.Context()), recipes.ErrClosed)
			for _, waiter := range waiters {
				require.ErrorIs(f, f.outcome(waiter).err, recipes.ErrClosed)
			}
			require.ErrorIs(f, lease.Release(), recipes.ErrClosed)
			for _, attempt := range []attempt{m.Acquire, m.TryAcquire} {
				_, err := attempt(f.Context())
				require.ErrorIs(f, err, recipes.ErrClosed)
			}
			require.Empty(f, f.queue())
		})
	}
}

// Without a connection nobody knows who waits elsewhere: the bounds count. Then the next caller waits until that
// is known.
func TestCohortWithoutAConnection(t *testing.T) {
	for _, hasOneCome := range []bool{false, true} {
		inBubble(t, func(f *fixture) {
			m := f.cohort(f.troubled(recipes.WithSessionTimeout(time.Minute)), mutex.Cohort{MaxPasses: 2, MaxTenure: time.Hour})
			lease := acquire(f.T, m)
			var waiters []<-chan result
			for range 5 {
				waiters = append(waiters, f.waitInside(f.Context(), m))
			}
			over := f.outage()
			var remote <-chan result
			if hasOneCome {
				remote = f.waiting(f.Context(), f.mutex(f.client()))
			}
			for _, waiter := range waiters[:2] {
				go func(lease *recipes.Lease) { _ = lease.Release() }(lease) // a pass: returns at once
				lease = f.granted(waiter)
			}
			require.NoError(f, lease.Release())
			pass(time.Second)
			require.Empty(f, waiters[2])
			over()
			if hasOneCome {
				require.NoError(f, f.granted(remote).Release())
			}
			next := f.granted(waiters[2])
			require.Equal(f, hasOneCome, next.Path() != lease.Path())
			require.NoError(f, next.Release())
			require.NoError(f, f.granted(waiters[3]).Release())
			require.NoError(f, f.granted(waiters[4]).Release())
			pass(moment)
			require.Empty(f, f.queue())
		})
	}
}

// Do passes the lock on like Acquire, and a cohort is part of a multilock like any mutex.
func TestCohortInDoAndMultilock(t *testing.T) {
	inBubble(t, func(f *fixture) {
		client := f.client()
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
				if pause(moment); inside != 1 {
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
		pass(moment)
		require.Empty(f, f.srv.Children("/locks/a"))
		require.Empty(f, f.srv.Children("/locks/b"))
	})
}

// On an adopted connection a cohort works as on an own one.
func TestCohortOnAnAdoptedConnection(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.srv.Delay(zktest.OpAny, time.Millisecond)
		m := f.cohort(adopt(f.T, f.srv, f.srv.Addr(), time.Minute), mutex.Cohort{MaxPasses: 2, MaxTenure: time.Hour, Linger: time.Second})
		lease := acquire(f.T, m)
		var waiters []<-chan result
		for range 6 {
			waiters = append(waiters, f.waitInside(f.Context(), m))
		}
		for range 2 {
			require.NoError(f, lease.Release())
			lease, waiters = f.granted(waiters[0]), waiters[1:]
		}
		remote := f.waiting(f.Context(), f.mutex(f.client()))
		for range 2 {
			require.NoError(f, lease.Release())
			lease, waiters = f.granted(waiters[0]), waiters[1:]
		}
		require.NoError(f, lease.Release())
		require.NoError(f, f.granted(remote).Release())
		require.NoError(f, f.granted(waiters[0]).Release())
		require.NoError(f, f.granted(waiters[1]).Release())
		pass(moment)
		require.Len(f, f.queue(), 1)
		pass(time.Second)
		require.Empty(f, f.queue())
	})
}
