package recipes_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// countingContext counts the functions and the contexts that wait for its end. A program may use one context for all its life.
type countingContext struct {
	context.Context //nolint:containedctx // which it counts for

	mu      sync.Mutex // protects what is below
	waiting int
}

// Value hides the context that is counted for from package context, which would not ask this one then.
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

// After a call has returned, nothing waits for the end of its context any more. Otherwise a program that uses one context for
// all its calls would collect one function per call.
func TestNothingStaysOnTheContextOfACall(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client, other := b.Client(), b.Client()
		m, err := mutex.New(client, "/m")
		require.NoError(b, err)
		cohort, err := mutex.New(client, "/c", mutex.WithCohort(mutex.Cohort{}))
		require.NoError(b, err)
		s, err := semaphore.New(client, "/s", 1)
		require.NoError(b, err)
		rw, err := rwlock.New(client, "/rw")
		require.NoError(b, err)
		l, err := latch.New(client, "/l")
		require.NoError(b, err)
		elected, err := selector.New(client, "/e", func(context.Context, *recipes.Lease) error { return nil })
		require.NoError(b, err)
		require.NoError(b, l.Start())
		blocked, err := mutex.New(other, "/m")
		require.NoError(b, err)

		acquired := func(acquire func(context.Context) (*recipes.Lease, error)) func(context.Context) error {
			return func(ctx context.Context) error {
				lease, err := acquire(ctx)
				if err != nil {
					return err
				}
				return lease.Release()
			}
		}
		b.Srv.Put("/m", nil)
		calls := map[string]func(ctx context.Context) error{
			"mutex": acquired(m.Acquire),
			"try":   acquired(m.TryAcquire),
			"do": func(ctx context.Context) error {
				return m.Do(ctx, func(context.Context, *recipes.Lease) error { return nil })
			},
			"cohort":       acquired(cohort.Acquire),
			"cohort try":   acquired(cohort.TryAcquire),
			"semaphore":    acquired(s.Acquire),
			"read lock":    acquired(rw.ReadLock().Acquire),
			"write lock":   acquired(rw.WriteLock().Acquire),
			"await":        func(ctx context.Context) error { _, err := l.Await(ctx); return err },
			"leader":       func(ctx context.Context) error { _, err := l.Leader(ctx); return err },
			"participants": func(ctx context.Context) error { _, err := l.Participants(ctx); return err },
			"run":          elected.Run,
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
		for name, call := range calls {
			ctx := &countingContext{Context: b.Context()}
			require.NoError(b, call(ctx), name)
			bubble.Pass(bubble.Moment)
			require.Zero(b, ctx.count(), name)
		}
	})
}

// An observer whose context has ended leaves nothing: no watch, no heartbeat of the session, no function on the context.
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
