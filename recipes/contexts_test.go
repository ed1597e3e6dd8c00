package recipes_test

import (
	"context"
	"math"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// countingContext counts the functions and contexts registered on its end. A program may use one context for its whole life.
type countingContext struct {
	context.Context //nolint:containedctx // which it counts for

	mu      sync.Mutex // protects what is below
	waiting int
}

// Value hides the inner context from package context, which would otherwise bypass countingContext.
func (*countingContext) Value(any) any { return nil }

// AfterFunc is what package context calls.
func (c *countingContext) AfterFunc(fn func()) (stop func() bool) {
	done := sync.OnceFunc(func() { c.add(-1) })
	c.add(1)
	stopParent := context.AfterFunc(c.Context, func() {
		done()
		fn()
	})
	return func() bool {
		done()
		return stopParent()
	}
}

func (c *countingContext) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += n
}

func (c *countingContext) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

// registered returns how many functions and contexts package context calls at the end of ctx.
func registered(ctx context.Context) int {
	return reflect.ValueOf(ctx).Elem().FieldByName("children").Len()
}

// After a call returns, nothing stays registered on its context, or on those of the session, and the client does not refer to its
// context. Otherwise a program with one client and one context for all its calls would collect one function per call. After all calls, the
// session has no watch, and is not in use, so that it pings rarely.
func TestNothingStaysOnTheContextOfACall(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		s, _, err := recipe.Attach(client, "/")
		require.NoError(b, err)
		ofBackground := make(chan context.Context, 1)
		require.True(b, s.Background(func(ctx context.Context) { ofBackground <- ctx }))
		tasks := <-ofBackground
		b.Srv.Put("/m", nil)
		calls, leader := callsWithAContext(b, client)
		bubble.Pass(time.Minute)
		ofSession, ofTasks := registered(s.Context()), registered(tasks)
		for name, call := range calls {
			ctx := &countingContext{Context: b.Context()}
			require.NoError(b, call(ctx), name)
			bubble.Pass(bubble.Moment)
			require.Zero(b, ctx.count(), name)
			require.Equal(b, ofSession, registered(s.Context()), name)
			require.Equal(b, ofTasks, registered(tasks), name)
			bubble.Pass(time.Minute) // the runtime may keep a stopped timer until its time
			left := weak.Make(ctx)
			runtime.GC()
			require.Nil(b, left.Value(), name)
		}
		require.NoError(b, leader.Close())
		bubble.Pass(10 * time.Minute) // unused watches are removed later
		at, _ := b.Srv.Session(client.Conn().SessionID())
		require.Zero(b, at.Watches)
		log := b.Srv.Observe()
		bubble.Pass(time.Hour)
		require.Empty(b, bubble.Operations(log))
		require.LessOrEqual(b, log.Count(zktest.OpPing), 2*int(time.Hour/(testclient.SessionTimeout/6)))
	})
}

// The timers of a lease end with it. Otherwise each lease would keep the context of its call until the time of the timers.
func TestReleasedLeasesAreForgotten(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		limited, err := mutex.New(b.Client(), "/m", mutex.WithMaxHold(time.Hour))
		require.NoError(b, err)
		slow, err := mutex.New(b.Client(recipes.WithSlowHold(time.Hour)), "/m")
		require.NoError(b, err)
		for name, m := range map[string]*mutex.InterProcessMutex{"limit": limited, "slow": slow} {
			calls := make([]weak.Pointer[countingContext], 100)
			for i := range calls {
				ctx := &countingContext{Context: b.Context()}
				calls[i] = weak.Make(ctx)
				lease, err := m.Acquire(ctx)
				require.NoError(b, err)
				b.Release(lease)
			}
			bubble.Pass(time.Minute)
			runtime.GC()
			kept := 0
			for _, ctx := range calls {
				if ctx.Value() != nil {
					kept++
				}
			}
			require.Less(b, kept, len(calls)/2, name) // the runtime keeps some stopped timers
		}
	})
}

// callsWithAContext returns calls of a client, and a latch of the client that leads.
func callsWithAContext(b *bubble.Bubble, client *recipes.Client) (calls map[string]func(ctx context.Context) error, leader *latch.LeaderLatch) {
	m, err := mutex.New(client, "/m")
	require.NoError(b, err)
	cohort, err := mutex.New(client, "/c", mutex.WithCohort(mutex.Cohort{}))
	require.NoError(b, err)
	s, err := semaphore.New(client, "/s", 1)
	require.NoError(b, err)
	rw, err := rwlock.New(client, "/rw")
	require.NoError(b, err)
	both, err := multilock.NewMutexes(client, []string{"/1", "/2"})
	require.NoError(b, err)
	daily, err := once.New(client, "/o")
	require.NoError(b, err)
	g, err := group.New(client, "/g")
	require.NoError(b, err)
	leader, err = latch.New(client, "/l")
	require.NoError(b, err)
	require.NoError(b, leader.Start())
	elected := func() *selector.LeaderSelector {
		s, err := selector.New(client, "/e", func(context.Context, *recipes.Lease) error { return nil })
		require.NoError(b, err)
		return s
	}
	blocked, err := mutex.New(b.Client(), "/m")
	require.NoError(b, err)

	acquired := func(acquire func(context.Context) (*recipes.Lease, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			lease, err := acquire(ctx)
			if err != nil {
				return err
			}
			bubble.Pass(session.WatchOwnAfter) // then the znode is watched
			return lease.Release()
		}
	}
	work := func(context.Context, *recipes.Lease) error { return nil }
	calls = map[string]func(ctx context.Context) error{
		"mutex":      acquired(m.Acquire),
		"try":        acquired(m.TryAcquire),
		"do":         func(ctx context.Context) error { return m.Do(ctx, work) },
		"do within":  func(ctx context.Context) error { return m.DoWithin(ctx, time.Second, work) },
		"cohort":     acquired(cohort.Acquire),
		"cohort try": acquired(cohort.TryAcquire),
		"semaphore":  acquired(s.Acquire),
		"read lock":  acquired(rw.ReadLock().Acquire),
		"write lock": acquired(rw.WriteLock().Acquire),
		"downgrade": func(ctx context.Context) error {
			writer, err := rw.WriteLock().Acquire(ctx)
			require.NoError(b, err)
			reader, err := rw.ReadLock().Acquire(writer.Context())
			require.NoError(b, err)
			require.NoError(b, writer.Release())
			return reader.Release()
		},
		"multilock": func(ctx context.Context) error {
			lease, err := both.Acquire(ctx)
			if err != nil {
				return err
			}
			return lease.Release()
		},
		"once": func(ctx context.Context) error { return daily.Do(ctx, "1", work) },
		"group": func(ctx context.Context) error {
			require.NoError(b, g.Join(nil))
			require.NoError(b, g.Await(ctx))
			watching, cancel := context.WithCancel(ctx)
			defer cancel()
			<-g.Watch(watching)
			return g.Leave()
		},
		"await":        func(ctx context.Context) error { _, err := leader.Await(ctx); return err },
		"leader":       func(ctx context.Context) error { _, err := leader.Leader(ctx); return err },
		"participants": func(ctx context.Context) error { _, err := leader.Participants(ctx); return err },
		"campaign": func(context.Context) error {
			s := elected()
			require.NoError(b, s.Start())
			bubble.Pass(bubble.Moment)
			return s.Close()
		},
		"campaign without numbers": func(context.Context) error {
			b.Srv.Put("/end", nil)
			b.Srv.SetSequence("/end", math.MaxInt32)
			l, err := latch.New(client, "/end")
			require.NoError(b, err)
			require.NoError(b, l.Start())
			bubble.Pass(bubble.Moment)
			require.ErrorIs(b, l.Err(), recipes.ErrSequenceExhausted)
			return nil
		},
		"run": func(ctx context.Context) error { return elected().Run(ctx) },
		"run in vain": func(ctx context.Context) error {
			s := elected()
			require.NoError(b, s.Close())
			require.ErrorIs(b, s.Run(ctx), recipes.ErrClosed)
			return nil
		},
		"subscribe": func(context.Context) error {
			_, stop := client.Subscribe()
			stop()
			return nil
		},
		"revoke":       func(ctx context.Context) error { return revoke.New(client).AttemptRevoke(ctx, "/m/x-lock-0000000000") },
		"inspect":      func(ctx context.Context) error { _, err := inspect.Read(ctx, client, "/m"); return err },
		"shared limit": func(ctx context.Context) error { return semaphore.SetSharedLimit(ctx, client, "/limit", 1) },
		"in vain": func(ctx context.Context) error {
			lease, err := blocked.Acquire(ctx)
			require.NoError(b, err)
			_, err = m.TryAcquire(ctx)
			require.ErrorIs(b, err, recipes.ErrNotAcquired)
			return lease.Release()
		},
		"wait": func(ctx context.Context) error {
			lease, err := blocked.Acquire(ctx)
			require.NoError(b, err)
			time.AfterFunc(time.Minute, func() { _ = lease.Release() })
			return acquired(m.Acquire)(ctx)
		},
	}
	return calls, leader
}

// An observer whose context ends leaves nothing: no watch, no heartbeat of the session, no function on the context.
func TestObserverLeavesNothing(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Client()
		l, err := latch.New(client, "/l")
		require.NoError(b, err)
		log := b.Srv.Observe()
		frames := func() int {
			before := len(log.Requests()) + log.Count(zktest.OpPing)
			bubble.Pass(10 * time.Minute)
			return len(log.Requests()) + log.Count(zktest.OpPing) - before
		}
		idle := frames()
		ctx, cancel := context.WithCancel(b.Context())
		counting := &countingContext{Context: ctx}
		observed := l.Observe(counting)
		bubble.Pass(time.Minute)
		<-observed
		require.Greater(b, frames(), idle)
		cancel()
		bubble.Pass(bubble.Moment)
		_, isOpen := <-observed
		require.False(b, isOpen)
		require.Zero(b, counting.count())
		bubble.Pass(time.Minute)
		require.InDelta(b, idle, frames(), 1, "the client is idle again")
	})
}
