package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// hold has another client hold a lock of each recipe, the permits of the semaphore included, until release is called.
func hold(b *bubble.Bubble, locks map[string]doer, names ...string) (release func()) {
	b.Helper()
	over, left := make(chan struct{}), make(chan error, len(names))
	for _, name := range names {
		go func() { // ends with release
			left <- locks[name].do(b.Context(), func(context.Context) error { <-over; return nil })
		}()
		bubble.Pass(bubble.Moment)
	}
	return func() {
		close(over)
		for range names {
			require.NoError(b, <-left)
		}
	}
}

// rivals are those who, together, leave a lock no room.
var rivals = map[string][]string{
	"mutex": {"mutex"}, "cohort": {"cohort"}, "read lock": {"write lock"}, "write lock": {"read lock"},
	"semaphore": {"semaphore", "semaphore"}, "semaphore mutex": {"semaphore mutex"}, "multilock": {"multilock"},
}

// The wait bounds the acquisition, and not the work.
func TestDoWithinBoundsTheWaitAlone(t *testing.T) {
	forEachDoer(t, func(b *bubble.Bubble, lock doer, _ *testkit.Log) {
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		require.Equal(b, errSale, lock.within(ctx, 5*time.Second, func(inner context.Context) error {
			require.Less(b, time.Since(start), time.Second)
			bubble.Pass(30 * time.Second)
			require.NoError(b, inner.Err(), "work for which there is time")
			<-inner.Done()
			require.Equal(b, context.DeadlineExceeded, inner.Err())
			return errSale
		}))
		require.Equal(b, time.Minute, time.Since(start))
	})
}

// Who does not get the lock within the wait, or before the end of the context, has done nothing.
func TestDoWithinGivesUpTheWait(t *testing.T) {
	for name, c := range map[string]struct {
		wait, limit, took time.Duration
		is                error
	}{
		"wait":              {5 * time.Second, time.Minute, 5 * time.Second, context.DeadlineExceeded},
		"context":           {time.Minute, 5 * time.Second, 5 * time.Second, context.DeadlineExceeded},
		"no wait":           {0, time.Minute, 0, recipes.ErrNotAcquired},
		"less than no wait": {-time.Second, time.Minute, 0, recipes.ErrNotAcquired},
	} {
		t.Run(name, func(t *testing.T) {
			for lockName, others := range rivals {
				t.Run(lockName, func(t *testing.T) {
					bubble.Run(t, func(b *bubble.Bubble) {
						release := hold(b, doers(b, b.Client(recipes.WithSessionTimeout(time.Minute))), others...)
						lock := doers(b, b.Client())[lockName]
						held := lock.holdings()
						ctx, cancel := context.WithTimeout(b.Context(), c.limit)
						defer cancel()
						start := time.Now()
						err := lock.within(ctx, c.wait, func(context.Context) error {
							require.FailNow(b, "called without the lock")
							return nil
						})
						require.InDelta(b, c.took, time.Since(start), float64(bubble.Moment))
						_, isOp := zkutil.AsType[*recipes.OpError](err)
						require.True(b, isOp, err)
						wait, isWait := zkutil.AsType[*recipes.WaitError](err)
						require.True(b, isWait, err)
						require.ErrorIs(b, err, c.is)
						require.InDelta(b, c.took, wait.Waited, float64(bubble.Moment))
						bubble.Pass(bubble.Moment)
						require.Equal(b, held, lock.holdings(), "nothing is left behind")
						release()
						ran := false
						require.NoError(b, lock.within(b.Context(), c.wait, func(context.Context) error { ran = true; return nil }))
						require.True(b, ran, "a lock that is free")
					})
				})
			}
		})
	}
}

// A deadline inside the function is no WaitError.
func TestDoWithinDistinguishesADeadlineOfTheWork(t *testing.T) {
	forEachDoer(t, func(b *bubble.Bubble, lock doer, _ *testkit.Log) {
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		err := lock.within(ctx, time.Second, func(inner context.Context) error {
			<-inner.Done()
			return inner.Err()
		})
		require.Equal(b, context.DeadlineExceeded, err)
		require.ErrorIs(b, lock.within(b.Context(), time.Second, nil), recipes.ErrInvalidArgument)
	})
}
