package recipes_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// busyWait is how long DoWithin waits in this test.
const busyWait = 5 * time.Second

const busyPath = "/busy"

// busyLock is a lock of any recipe that another client holds. Each function is nil if the recipe lacks it.
type busyLock struct {
	acquire, try, do   func(ctx context.Context) error
	within, withinZero func(ctx context.Context) error // DoWithin with busyWait, and with 0
	position           int                             // of a waiter; 0: unknown, and the holder too
}

// lockWithDo has the methods of a lock whose leases have the type L.
type lockWithDo[L any] interface {
	Acquire(ctx context.Context) (L, error)
	TryAcquire(ctx context.Context) (L, error)
	Do(ctx context.Context, fn func(context.Context, L) error) error
	DoWithin(ctx context.Context, wait time.Duration, fn func(context.Context, L) error) error
}

func busyLockOf[L any](lock lockWithDo[L]) busyLock {
	never := func(context.Context, L) error { return errors.New("called without the lock") }
	return busyLock{
		acquire:    func(ctx context.Context) error { _, err := lock.Acquire(ctx); return err },
		try:        func(ctx context.Context) error { _, err := lock.TryAcquire(ctx); return err },
		do:         func(ctx context.Context) error { return lock.Do(ctx, never) },
		within:     func(ctx context.Context) error { return lock.DoWithin(ctx, busyWait, never) },
		withinZero: func(ctx context.Context) error { return lock.DoWithin(ctx, 0, never) },
		position:   2,
	}
}

// busyLocks returns, for each recipe, the lock of a client and what makes another client hold it.
var busyLocks = map[string]func(b *bubble.Bubble, other, client *recipes.Client) busyLock{
	"mutex": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		holdMutex(b, other)
		return busyLockOf(busyMutex(b, client, busyPath))
	},
	"cohort": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		holdMutex(b, other)
		return busyLockOf(busyMutex(b, client, busyPath, mutex.WithCohort(mutex.Cohort{})))
	},
	"cohort of the holder": func(b *bubble.Bubble, _, client *recipes.Client) busyLock {
		m := busyMutex(b, client, busyPath, mutex.WithCohort(mutex.Cohort{}))
		bubble.Acquire(b, m.Acquire)
		return busyLockOf(m)
	},
	"read lock": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		bubble.Acquire(b, pairOn(b, other).WriteLock().Acquire)
		return busyLockOf(pairOn(b, client).ReadLock())
	},
	"write lock": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		bubble.Acquire(b, pairOn(b, other).ReadLock().Acquire)
		return busyLockOf(pairOn(b, client).WriteLock())
	},
	"semaphore": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		first, err := semaphore.New(other, busyPath, 2)
		require.NoError(b, err)
		_, err = first.AcquireN(b.Context(), 2)
		require.NoError(b, err)
		second, err := semaphore.New(client, busyPath, 2)
		require.NoError(b, err)
		lock := busyLockOf(second)
		lock.position = 1 // among the waiters
		return lock
	},
	"semaphore mutex": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		first, err := semaphore.NewMutex(other, busyPath)
		require.NoError(b, err)
		bubble.Acquire(b, first.Acquire)
		second, err := semaphore.NewMutex(client, busyPath)
		require.NoError(b, err)
		lock := busyLockOf(second)
		lock.position = 1 // among the waiters
		return lock
	},
	"multilock": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		holdMutex(b, other)
		several, err := multilock.NewMutexes(client, []string{"/a", busyPath})
		require.NoError(b, err)
		return busyLockOf(several)
	},
	"multilock of other locks": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		holdMutex(b, other)
		several, err := multilock.New(plainErrors{busyMutex(b, client, busyPath)})
		require.NoError(b, err)
		lock := busyLockOf(several)
		lock.position = 0
		return lock
	},
	"once": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		holdMutex(b, other)
		o, err := once.New(client, busyPath)
		require.NoError(b, err)
		never := func(context.Context, *recipes.Lease) error { return errors.New("called without the lock") }
		return busyLock{
			do:         func(ctx context.Context) error { return o.Do(ctx, "1", never) },
			within:     func(ctx context.Context) error { return o.DoWithin(ctx, busyWait, "1", never) },
			withinZero: func(ctx context.Context) error { return o.DoWithin(ctx, 0, "1", never) },
			position:   2,
		}
	},
	"once, Forget": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		holdMutex(b, other)
		o, err := once.New(client, busyPath)
		require.NoError(b, err)
		return busyLock{do: o.Forget, position: 2}
	},
	"latch": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		first, err := latch.New(other, busyPath)
		require.NoError(b, err)
		require.NoError(b, first.Start())
		bubble.Acquire(b, first.Await)
		second, err := latch.New(client, busyPath)
		require.NoError(b, err)
		require.NoError(b, second.Start())
		bubble.Pass(bubble.Moment)
		return busyLock{acquire: func(ctx context.Context) error { _, err := second.Await(ctx); return err }, position: 2}
	},
	"selector": func(b *bubble.Bubble, other, client *recipes.Client) busyLock {
		work := func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return nil }
		first, err := selector.New(other, busyPath, work)
		require.NoError(b, err)
		require.NoError(b, first.Start())
		bubble.Pass(bubble.Moment)
		second, err := selector.New(client, busyPath, work)
		require.NoError(b, err)
		return busyLock{acquire: second.Run, position: 2}
	},
}

func busyMutex(b *bubble.Bubble, client *recipes.Client, path string, opts ...mutex.Option) *mutex.InterProcessMutex {
	m, err := mutex.New(client, path, opts...)
	require.NoError(b, err)
	return m
}

func holdMutex(b *bubble.Bubble, client *recipes.Client) {
	bubble.Acquire(b, busyMutex(b, client, busyPath).Acquire)
}

func pairOn(b *bubble.Bubble, client *recipes.Client) *rwlock.InterProcessReadWriteLock {
	pair, err := rwlock.New(client, busyPath)
	require.NoError(b, err)
	return pair
}

// plainErrors is a Locker of another package, which returns only what the interface demands.
type plainErrors struct{ *mutex.InterProcessMutex }

func (l plainErrors) Acquire(ctx context.Context) (*recipes.Lease, error) {
	lease, err := l.InterProcessMutex.Acquire(ctx)
	if err != nil {
		return nil, ctx.Err()
	}
	return lease, nil
}

func (l plainErrors) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	lease, err := l.InterProcessMutex.TryAcquire(ctx)
	if err != nil && ctx.Err() == nil {
		return nil, recipes.ErrNotAcquired
	}
	return lease, ctx.Err()
}

// waitEnding is a way to end a wait.
type waitEnding struct {
	end  func(ctx context.Context) (context.Context, context.CancelFunc)
	is   error // of the context; nil: the wait ends by itself
	took time.Duration
}

// waitEndings are the ways to end a wait.
var waitEndings = map[string]waitEnding{
	"at a deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 3*time.Second)
	}, context.DeadlineExceeded, 3 * time.Second},
	"when cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(3*time.Second, cancel)
		return ctx, cancel
	}, context.Canceled, 3 * time.Second},
	"with an ended context": {func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}, context.Canceled, 0},
	"unbounded": {context.WithCancel, nil, 0},
}

// waysToWait are the calls of a lock.
var waysToWait = map[string]func(busyLock) func(context.Context) error{
	"Acquire":    func(l busyLock) func(context.Context) error { return l.acquire },
	"TryAcquire": func(l busyLock) func(context.Context) error { return l.try },
	"Do":         func(l busyLock) func(context.Context) error { return l.do },
	"DoWithin":   func(l busyLock) func(context.Context) error { return l.within },
	"DoWithin 0": func(l busyLock) func(context.Context) error { return l.withinZero },
}

// endsWait reports whether an ending ends a call of a recipe with an error.
func (e waitEnding) endsWait(recipe, way string) bool {
	switch {
	case recipe == "selector" && errors.Is(e.is, context.Canceled): // Run stops in order
		return false
	case way == "TryAcquire" || way == "DoWithin 0":
		return e.took == 0
	default:
		return e.is != nil || way == "DoWithin"
	}
}

// Each way to wait in vain, for each recipe, has one error: an OpError with a WaitError that matches ErrNotAcquired, and the error
// of the context if the context ended.
func TestNotAcquired(t *testing.T) {
	for recipe, lockOf := range busyLocks {
		for ending, e := range waitEndings {
			for way, wait := range waysToWait {
				if !e.endsWait(recipe, way) {
					continue
				}
				t.Run(recipe+"/"+way+"/"+ending, func(t *testing.T) {
					bubble.Run(t, func(b *bubble.Bubble) {
						lock := lockOf(b, b.Client(), b.Troubled())
						if wait := wait(lock); wait != nil {
							requireWaitsInVain(b, recipe, way, lock, e, wait)
						}
					})
				})
			}
		}
	}
}

func requireWaitsInVain(b *bubble.Bubble, recipe, way string, lock busyLock, e waitEnding, wait func(context.Context) error) {
	b.Helper()
	is, took := e.is, e.took
	if way == "DoWithin" && is == nil {
		is, took = context.DeadlineExceeded, busyWait
	}
	ctx, cancel := e.end(b.Context())
	defer cancel()
	if ctx.Err() != nil && recipe != "latch" { // the latch is in the queue before Await
		lock.position = 0
	}
	requireNotAcquired(b, lock, wait(ctx), is, took)
}

// requireNotAcquired checks the error of a wait that ended after took with the error is, or without the end of a context.
func requireNotAcquired(b *bubble.Bubble, lock busyLock, err, is error, took time.Duration) {
	b.Helper()
	_, isOp := zkutil.AsType[*recipes.OpError](err)
	require.True(b, isOp, err)
	wait, isWait := zkutil.AsType[*recipes.WaitError](err)
	require.True(b, isWait, err)
	require.ErrorIs(b, err, recipes.ErrNotAcquired)
	for _, end := range []error{context.DeadlineExceeded, context.Canceled} {
		require.Equal(b, errors.Is(is, end), errors.Is(err, end), err)
	}
	require.InDelta(b, took, wait.Waited, float64(bubble.Moment))
	require.Equal(b, lock.position, wait.Position)
	require.Equal(b, lock.position > 0, wait.Holder.Path != "", "%+v", wait.Holder)
}
