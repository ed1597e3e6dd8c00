package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The locks are acquired in order, and given back in reverse.
func TestOrder(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		m, err := multilock.NewMutexes(b.Client(), []string{all[2], all[0], all[1]})
		require.NoError(b, err)
		log := b.Srv.Observe()
		lease := bubble.Acquire(b, m.Acquire)
		require.Equal(b, all, held(b))
		var parts []string
		for _, part := range lease.Leases() {
			parts = append(parts, part.Path()[:len(all[0])])
		}
		require.Equal(b, all, parts, "sorted")
		b.Stands(lease)
		b.Release(lease)
		require.ErrorIs(b, b.Cause(lease), recipes.ErrReleased)
		require.ErrorIs(b, lease.Release(), recipes.ErrNotHeld)
		require.Empty(b, held(b))
		require.Zero(b, log.Count(zktest.OpDelete), "one transaction")
	})
}

// One deadline bounds all locks: the second gets the remaining time, and nothing stays in the queue of the third meanwhile. In Curator, each lock
// has the full time, and an error does not end the loop.
func TestOneDeadlineAndAStop(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		other, m := b.Client(), mutexes(b, b.Client())
		first, second := bubble.Acquire(b, mutexOn(b, other, all[0]).Acquire), bubble.Acquire(b, mutexOn(b, other, all[1]).Acquire)
		time.AfterFunc(4*time.Second, func() { _ = first.Release() })
		for _, at := range []time.Duration{time.Second, 4500 * time.Millisecond} { // while it waits for the first, and for the second
			time.AfterFunc(at, func() { require.NotContains(b, held(b), all[2]) })
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		_, err := m.Acquire(ctx)
		require.Equal(b, 5*time.Second, time.Since(start))
		var wait *recipes.WaitError
		require.ErrorAs(b, err, &wait)
		require.Equal(b, 2, wait.Position)
		require.Equal(b, time.Second, wait.Waited, "for the second lock")
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.ErrorContains(b, err, "multilock: acquire: lock 2 of 3: mutex: acquire /locks/b: ")
		bubble.Pass(time.Second)
		require.Equal(b, []string{all[1]}, held(b), "given back")
		b.Release(second)
	})
}

func TestTryAcquire(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		m := mutexes(b, b.Client())
		taken := bubble.Acquire(b, mutexOn(b, b.Client(), all[2]).Acquire)
		start := time.Now()
		_, err := m.TryAcquire(b.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		require.Equal(b, start, time.Now())
		require.Equal(b, []string{all[2]}, held(b))
		b.Release(taken)
		lease := bubble.Acquire(b, m.TryAcquire)
		require.Equal(b, all, held(b))
		b.Release(lease)
	})
}

// failing is a lock that can't be acquired.
type failing struct{ err error }

func (f failing) Acquire(context.Context) (*recipes.Lease, error)    { return nil, f.err }
func (f failing) TryAcquire(context.Context) (*recipes.Lease, error) { return nil, f.err }

// Curator's testSomeLocksFailToLock: acquired locks are released, and locks after the failure are not acquired.
func TestFailureGivesBack(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client, broken := b.Client(), errors.New("broken")
		m, err := multilock.New(mutexOn(b, client, all[0]), mutexOn(b, client, all[1]), failing{broken}, mutexOn(b, client, all[2]))
		require.NoError(b, err)
		for _, acquire := range []func(context.Context) (*multilock.Lease, error){m.Acquire, m.TryAcquire} {
			log := b.Srv.Observe()
			_, err := acquire(b.Context())
			require.ErrorIs(b, err, broken)
			require.Empty(b, held(b))
			for _, r := range log.Requests() {
				require.NotContains(b, r.Path, all[2])
			}
		}
		require.ErrorIs(b, m.Do(b.Context(), func(context.Context, *multilock.Lease) error { panic("called") }), broken)
	})
}

// The lease ends with any of its parts, and that part's cause. The other parts stay held until Release, which returns the loss
// and releases them (Curator's testSomeReleasesFail).
func TestLossOfAPart(t *testing.T) {
	for i := range all {
		bubble.Run(t, func(b *bubble.Bubble) {
			lease := bubble.Acquire(b, mutexes(b, b.Client()).Acquire)
			parts := lease.Leases()
			b.Srv.Delete(parts[i].Path())
			require.ErrorIs(b, b.Cause(lease), recipes.ErrNodeDeleted)
			for j, part := range parts {
				if j != i {
					b.Stands(part)
				}
			}
			err := lease.Release()
			require.ErrorIs(b, err, recipes.ErrNodeDeleted)
			require.ErrorContains(b, err, "multilock: release: ")
			require.Empty(b, held(b))
			require.ErrorIs(b, b.Cause(lease), recipes.ErrNodeDeleted, "the first cause stays")
			for j, part := range parts {
				if j != i {
					require.ErrorIs(b, b.Cause(part), recipes.ErrReleased)
				}
			}
		})
	}
}

// A part that is lost during the wait for a later one ends the wait with the loss, not with the error of a context that the
// caller did not cancel.
func TestLossWhileWaiting(t *testing.T) {
	for name, lose := range map[string]func(b *bubble.Bubble, client *recipes.Client, part string){
		"deleted": func(b *bubble.Bubble, _ *recipes.Client, part string) { b.Srv.Delete(part) },
		"expired": func(b *bubble.Bubble, client *recipes.Client, _ string) { b.ExpireUnheard(client) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				taken := bubble.Acquire(b, mutexOn(b, b.Client(), all[1]).Acquire)
				client := b.Troubled()
				waiting := bubble.Waiting(b, b.Context(), mutexes(b, client).Acquire)
				lose(b, client, b.Queue(all[0])[0])
				got := bubble.Receive(b, waiting)
				want := map[string]error{"deleted": recipes.ErrNodeDeleted, "expired": recipes.ErrSessionLost}[name]
				require.ErrorIs(b, got.Err, want)
				require.NotErrorIs(b, got.Err, context.Canceled)
				require.ErrorContains(b, got.Err, "lost a lock before lock 2 of 3 was acquired")
				bubble.Pass(10 * time.Second)
				require.Equal(b, []string{all[1]}, held(b))
				b.Release(taken)
			})
		})
	}
}

// The context of a lease has the values of the caller, not the end, and carries the holds of all parts.
func TestContext(t *testing.T) {
	type key struct{}
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		m := mutexes(b, client)
		ctx, cancel := context.WithTimeout(context.WithValue(b.Context(), key{}, "caller"), time.Minute)
		lease, err := m.Acquire(ctx)
		require.NoError(b, err)
		cancel()
		b.Stands(lease)
		_, isBounded := lease.Context().Deadline()
		require.False(b, isBounded)
		require.Equal(b, "caller", lease.Context().Value(key{}))

		log := b.Srv.Observe()
		for i, path := range all {
			inner, err := mutexOn(b, client, path).Acquire(context.WithValue(lease.Context(), key{}, i))
			require.NoError(b, err)
			require.Equal(b, lease.Leases()[i].FencingToken(), inner.FencingToken())
			b.Release(inner)
		}
		again, err := m.Acquire(lease.Context())
		require.NoError(b, err, "no re-entry of its own: each part re-enters")
		b.Release(lease)
		require.Empty(b, bubble.Requests(log))
		require.Equal(b, all, held(b))
		b.Stands(again)
		b.Release(again)
		require.Empty(b, held(b))
		_, err = m.Acquire(again.Context())
		require.ErrorIs(b, err, recipes.ErrReleased)
	})
}

// Releasing a single part ends the lease.
func TestPartReleased(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		lease := bubble.Acquire(b, mutexes(b, b.Client()).Acquire)
		parts := lease.Leases()
		b.Release(parts[1])
		require.ErrorIs(b, b.Cause(lease), recipes.ErrReleased)
		b.Stands(parts[0], parts[2])
		parts[0] = nil // the caller's own slice
		b.Release(lease)
		require.Empty(b, held(b))
	})
}

// A multilock has locks of different kinds, and clients.
func TestDifferentKinds(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client, other := b.Client(), b.Client()
		m, err := multilock.New(mutexOn(b, client, all[0]), rwlockOn(b, client, all[1]).ReadLock(), rwlockOn(b, other, all[2]).WriteLock())
		require.NoError(b, err)
		require.NoError(b, m.Do(b.Context(), func(ctx context.Context, lease *multilock.Lease) error {
			require.Len(b, lease.Leases(), 3)
			shared := bubble.Acquire(b, rwlockOn(b, other, all[1]).ReadLock().TryAcquire)
			b.Release(shared)
			_, err := rwlockOn(b, client, all[1]).WriteLock().Acquire(ctx)
			require.ErrorIs(b, err, rwlock.ErrUpgrade)
			under, err := rwlockOn(b, other, all[2]).ReadLock().Acquire(ctx)
			require.NoError(b, err)
			return under.Release()
		}))
		require.Empty(b, held(b))
	})
}

// A multilock and its leases have a text, and can be logged.
func TestTexts(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		m, err := multilock.New(mutexOn(b, client, all[0]), rwlockOn(b, client, all[1]).ReadLock())
		require.NoError(b, err)
		const locks = "multilock of 2: mutex /locks/a, read-lock /locks/b"
		require.Equal(b, locks, fmt.Sprintf("%+v", m))
		require.Equal(b, locks, m.LogValue().String())
		lease := bubble.Acquire(b, m.Acquire)
		parts := lease.Leases()
		leases := fmt.Sprintf("multilock of 2: mutex /locks/a, token %d, read-lock /locks/b, token %d", parts[0].FencingToken(), parts[1].FencingToken())
		require.Equal(b, leases, fmt.Sprintf("%+v", lease))
		require.Equal(b, leases, lease.LogValue().String())
		b.Release(lease)
	})
}

// Permits of a semaphore are parts like any other. They do not re-enter.
func TestSemaphoresAsParts(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		permits, err := semaphore.New(client, "/permits/a", 2)
		require.NoError(b, err)
		single, err := semaphore.NewMutex(client, "/permits/b")
		require.NoError(b, err)
		m, err := multilock.New(permits, single, mutexOn(b, client, all[0]))
		require.NoError(b, err)
		lease := bubble.Acquire(b, m.Acquire)
		_, err = m.TryAcquire(lease.Context())
		require.ErrorIs(b, err, recipes.ErrNotAcquired)
		require.ErrorContains(b, err, "lock 2 of 3: semaphore-mutex: ")
		require.Len(b, b.Queue("/permits/a/leases"), 1, "the second permit is given back")
		b.Release(lease)
		b.Release(bubble.Acquire(b, m.Acquire))
		require.Empty(b, b.Queue("/permits/a/leases"))
	})
}

func TestDo(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		m, broken := mutexes(b, b.Client()), errors.New("broken")
		require.ErrorIs(b, m.Do(b.Context(), func(context.Context, *multilock.Lease) error { return broken }), broken)
		require.Empty(b, held(b))
		err := m.Do(b.Context(), func(ctx context.Context, lease *multilock.Lease) error {
			b.Srv.Delete(lease.Leases()[1].Path())
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(b, err, recipes.ErrNodeDeleted)
		require.ErrorContains(b, err, "multilock: do: ")
		require.NotContains(b, err.Error(), "\n")
		require.Empty(b, held(b))
		require.PanicsWithValue(b, broken, func() { _ = m.Do(b.Context(), func(context.Context, *multilock.Lease) error { panic(broken) }) })
		require.Empty(b, held(b))
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		var wait *recipes.WaitError
		require.ErrorAs(b, m.Do(ctx, func(context.Context, *multilock.Lease) error { return nil }), &wait)
	})
}

func TestBadInput(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		log := b.Srv.Observe()
		one, two := mutexOn(b, client, all[0]), mutexOn(b, client, all[1])
		for _, test := range []struct {
			want string
			make func() (*multilock.InterProcessMultiLock, error)
		}{
			{"no locks given", func() (*multilock.InterProcessMultiLock, error) { return multilock.New() }},
			{"no locks given", func() (*multilock.InterProcessMultiLock, error) { return multilock.NewMutexes(client, nil) }},
			{"lock 2 of 2 is nil", func() (*multilock.InterProcessMultiLock, error) { return multilock.New(one, nil) }},
			{"lock 1 of 1 is nil", func() (*multilock.InterProcessMultiLock, error) {
				return multilock.New((*mutex.InterProcessMutex)(nil))
			}},
			{"lock 1 of 1 is nil", func() (*multilock.InterProcessMultiLock, error) {
				return multilock.New((*semaphore.InterProcessSemaphore)(nil))
			}},
			{"lock 1 of 2 is nil", func() (*multilock.InterProcessMultiLock, error) { return multilock.New((*rwlock.Lock)(nil), one) }},
			{"lock 3 of 3 is the same as lock 1", func() (*multilock.InterProcessMultiLock, error) { return multilock.New(one, two, one) }},
			{`path "/locks/b" is given twice`, func() (*multilock.InterProcessMultiLock, error) {
				return multilock.NewMutexes(client, []string{all[1], all[0], all[1]})
			}},
			{`mutex: new a: invalid path "a": not absolute`, func() (*multilock.InterProcessMultiLock, error) {
				return multilock.NewMutexes(client, []string{all[1], "a"})
			}},
			{"mutex: new /locks/a: the client is nil", func() (*multilock.InterProcessMultiLock, error) { return multilock.NewMutexes(nil, all) }},
			{"mutex: new /locks/a: nil option", func() (*multilock.InterProcessMultiLock, error) { return multilock.NewMutexes(client, all, nil) }},
		} {
			m, err := test.make()
			require.ErrorIs(b, err, recipes.ErrInvalidArgument, test.want)
			require.EqualError(b, err, "multilock: new: "+test.want)
			require.Nil(b, m, test.want)
		}
		m, err := multilock.New(one, two)
		require.NoError(b, err)
		require.ErrorIs(b, m.Do(b.Context(), nil), recipes.ErrInvalidArgument)
		require.Empty(b, bubble.Requests(log))
	})
}

// uncomparable is a lock of a user's whose values can't be compared.
type uncomparable struct {
	failing

	_ []int
}

func TestLocksThatCantBeCompared(t *testing.T) {
	_, err := multilock.New(uncomparable{}, uncomparable{})
	require.NoError(t, err)
}

// Clients that name the paths in different orders do not wait for each other, and are alone.
func TestSortedPathsDoNotDeadlock(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const clients = 3
		rounds := testkit.Shorter(200, 20)
		var inside, turns int // guarded by the lock
		done := make(chan error, clients)
		for i := range clients {
			paths := []string{all[i], all[(i+1)%3], all[(i+2)%3]}
			m, err := multilock.NewMutexes(b.Client(), paths)
			require.NoError(b, err)
			go func() { // ends with its rounds; joined below
				for range rounds {
					if err := m.Do(b.Context(), func(context.Context, *multilock.Lease) error {
						inside++
						turns++
						defer func() { inside-- }()
						if inside != 1 {
							return errors.New("not alone")
						}
						return nil
					}); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range clients {
			require.NoError(b, <-done)
		}
		require.Equal(b, clients*rounds, turns)
		require.Empty(b, held(b))
	})
}

// Curator's testWaitingProcessKilledServer, testKilledSession, testContainerCleanup and testWithNamespace.
func TestOutageExpiryAndNamespace(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		m := mutexes(b, b.Client(recipes.WithNamespace("team")))
		client := b.Troubled(recipes.WithNamespace("team"), recipes.WithSessionTimeout(time.Minute))
		held := bubble.Acquire(b, m.Acquire)
		require.Len(b, b.Queue("/team"+all[0]), 1)
		waiting := bubble.Waiting(b, b.Context(), mutexes(b, client).Acquire)
		over := b.Outage()
		b.Release(held)
		over()
		lease := bubble.Granted(b, waiting)
		next := bubble.Waiting(b, b.Context(), m.Acquire)
		b.ExpireUnheard(client)
		require.ErrorIs(b, b.Cause(lease), recipes.ErrSessionLost)
		require.ErrorIs(b, lease.Release(), recipes.ErrSessionLost)
		b.Release(bubble.Granted(b, next))
		for range 4 {
			b.Srv.Reap()
		}
		require.Empty(b, b.Srv.Children("/team"))
		b.Release(bubble.Acquire(b, m.Acquire))
	})
}
