package recipes_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// doer is a lock of any recipe with Do, without the type of its lease.
type doer struct {
	do       func(ctx context.Context, fn func(context.Context) error) error
	within   func(ctx context.Context, wait time.Duration, fn func(context.Context) error) error
	holdings func() int // how many znodes of the lock there are
}

// work is the function that Do calls for a lock whose leases are of type L.
func work[L any](fn func(context.Context) error) func(context.Context, L) error {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context, _ L) error { return fn(ctx) }
}

// doers are the locks of all recipes, of one client.
func doers(b *bubble.Bubble, client *recipes.Client) map[string]doer {
	b.Helper()
	onOneLease := func(lock interface {
		Do(context.Context, func(context.Context, *recipes.Lease) error) error
		DoWithin(context.Context, time.Duration, func(context.Context, *recipes.Lease) error) error
	}, dirs ...string,
	) doer {
		return doer{
			do: func(ctx context.Context, fn func(context.Context) error) error {
				return lock.Do(ctx, work[*recipes.Lease](fn))
			},
			within: func(ctx context.Context, wait time.Duration, fn func(context.Context) error) error {
				return lock.DoWithin(ctx, wait, work[*recipes.Lease](fn))
			},
			holdings: func() int { return count(b, dirs) },
		}
	}
	plain, err := mutex.New(client, "/plain")
	require.NoError(b, err)
	cohort, err := mutex.New(client, "/cohort", mutex.WithCohort(mutex.Cohort{}))
	require.NoError(b, err)
	pair, err := rwlock.New(client, "/pair")
	require.NoError(b, err)
	permits, err := semaphore.New(client, "/permits", 2)
	require.NoError(b, err)
	single, err := semaphore.NewMutex(client, "/single")
	require.NoError(b, err)
	several, err := multilock.NewMutexes(client, []string{"/several/a", "/several/b"})
	require.NoError(b, err)
	return map[string]doer{
		"mutex":           onOneLease(plain, "/plain"),
		"cohort":          onOneLease(cohort, "/cohort"),
		"read lock":       onOneLease(pair.ReadLock(), "/pair"),
		"write lock":      onOneLease(pair.WriteLock(), "/pair"),
		"semaphore":       onOneLease(permits, "/permits/leases"),
		"semaphore mutex": onOneLease(single, "/single/leases"),
		"multilock": {
			do: func(ctx context.Context, fn func(context.Context) error) error {
				return several.Do(ctx, work[*multilock.Lease](fn))
			},
			within: func(ctx context.Context, wait time.Duration, fn func(context.Context) error) error {
				return several.DoWithin(ctx, wait, work[*multilock.Lease](fn))
			},
			holdings: func() int { return count(b, []string{"/several/a", "/several/b"}) },
		},
	}
}

func count(b *bubble.Bubble, dirs []string) (n int) {
	for _, dir := range dirs {
		n += len(b.Srv.Children(dir))
	}
	return n
}

var errSale = errors.New("sold out")

// forEachDoer runs a test for the lock of each recipe, with a client whose session outlasts the operation timeout of
// ten seconds, unless opts say otherwise.
func forEachDoer(t *testing.T, test func(b *bubble.Bubble, lock doer, log *testkit.Log), opts ...recipes.Option) {
	t.Helper()
	for _, name := range []string{"mutex", "cohort", "read lock", "write lock", "semaphore", "semaphore mutex", "multilock"} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				log := &testkit.Log{}
				opts := append([]recipes.Option{
					recipes.WithSessionTimeout(time.Minute), recipes.WithLogger(log.Logger(slog.LevelWarn)),
				}, opts...)
				test(b, doers(b, b.Troubled(opts...))[name], log)
			})
		})
	}
}

// silence freezes the servers.
func silence(b *bubble.Bubble) { b.Srv.Freeze(b.Srv.Addrs()...) }

// A server falls silent while the function works. Do returns at the end of its context, with the function's result. The log
// says that the znode still exists, and the client keeps retrying the deletion.
func TestDoReturnsAtTheEndOfItsContext(t *testing.T) {
	for _, result := range []error{nil, errSale} {
		forEachDoer(t, func(b *bubble.Bubble, lock doer, log *testkit.Log) {
			start := time.Now()
			ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
			defer cancel()
			err := lock.do(ctx, func(context.Context) error {
				bubble.Pass(380 * time.Millisecond)
				silence(b)
				return result
			})
			require.Equal(b, 5*time.Second, time.Since(start))
			require.Equal(b, result, err, "exactly what the function has returned")
			bubble.Pass(0)
			require.Contains(b, strings.Join(log.Take(), "\n"), "not deleted yet; retrying")
			require.NotZero(b, lock.holdings())
			b.Srv.Heal()
			bubble.Pass(30 * time.Second)
			require.Zero(b, lock.holdings())
		})
	}
}

// The trust of a short session ends before the operation timeout. Others may get the lock then at any time, so Do waits no longer.
func TestDoDoesNotOutlastWhatCouldBeHeld(t *testing.T) {
	forEachDoer(t, func(b *bubble.Bubble, lock doer, log *testkit.Log) {
		var silentAt time.Time
		require.NoError(b, lock.do(b.Context(), func(context.Context) error {
			bubble.Pass(time.Second)
			silence(b)
			silentAt = time.Now()
			return nil
		}))
		require.LessOrEqual(b, time.Since(silentAt), testclient.SessionTimeout*2/3)
		require.Greater(b, time.Since(silentAt), testclient.SessionTimeout/3)
		bubble.Pass(0)
		require.Contains(b, strings.Join(log.Take(), "\n"), "not deleted yet; retrying")
		b.Srv.Heal()
		bubble.Pass(time.Minute)
		require.Zero(b, lock.holdings())
	}, recipes.WithSessionTimeout(testclient.SessionTimeout))
}

// Under StandardErrorPolicy a lease ends with its connection, and so does the wait of Do.
func TestDoDoesNotOutlastTheConnectionUnderStandardErrorPolicy(t *testing.T) {
	forEachDoer(t, func(b *bubble.Bubble, lock doer, _ *testkit.Log) {
		var over func()
		start := time.Now()
		require.NoError(b, lock.do(b.Context(), func(context.Context) error {
			silence(b)
			time.AfterFunc(time.Second, func() { b.Srv.Stop(b.Srv.Addrs()...) })
			over = func() {
				require.NoError(b, errors.Join(b.Srv.Restart(b.Srv.Addrs()[0]), b.Srv.Restart(b.Srv.Addrs()[1])))
			}
			return nil
		}))
		require.Equal(b, time.Second, time.Since(start))
		b.Srv.Heal()
		over()
		bubble.Pass(2 * time.Minute)
		require.Zero(b, lock.holdings())
	}, recipes.WithErrorPolicy(recipes.StandardErrorPolicy))
}

// A context that is over already does not make Do wait at all, and costs no record where the server answers.
func TestDoWithAContextThatIsOver(t *testing.T) {
	for name, isSilent := range map[string]bool{"server answers": false, "server is silent": true} {
		t.Run(name, func(t *testing.T) {
			forEachDoer(t, func(b *bubble.Bubble, lock doer, log *testkit.Log) {
				b.Srv.Delay(zktest.OpDelete, 100*time.Millisecond)
				ctx, cancel := context.WithCancelCause(b.Context())
				var start time.Time
				err := lock.do(ctx, func(ctx context.Context) error {
					if isSilent {
						silence(b)
					}
					cancel(errSale)
					start = time.Now()
					return context.Cause(ctx)
				})
				require.Equal(b, errSale, err)
				require.Equal(b, start, time.Now())
				bubble.Pass(10 * time.Second) // a sixth of the session timeout
				require.Equal(b, isSilent, strings.Contains(strings.Join(log.Take(), "\n"), "not deleted yet"))
				b.Srv.Heal()
				bubble.Pass(30 * time.Second)
				require.Zero(b, lock.holdings())
			})
		})
	}
}

// A panic leaves Do after the release, at the latest with the context.
func TestDoPanicsOnAtTheEndOfItsContext(t *testing.T) {
	forEachDoer(t, func(b *bubble.Bubble, lock doer, _ *testkit.Log) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		require.PanicsWithValue(b, "of the work", func() {
			_ = lock.do(ctx, func(context.Context) error {
				silence(b)
				panic("of the work")
			})
		})
		require.Equal(b, 5*time.Second, time.Since(start))
		b.Srv.Heal()
		bubble.Pass(30 * time.Second)
		require.Zero(b, lock.holdings())
	})
}

// The client is closed while Do waits for the deletion. The work was finished before.
func TestDoWhileTheClientCloses(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled(recipes.WithSessionTimeout(time.Minute))
		lock := doers(b, client)["mutex"]
		remove := b.Srv.Delay(zktest.OpDelete, 2*time.Second)
		done := make(chan error)
		go func() { done <- lock.do(b.Context(), func(context.Context) error { return nil }) }() // joined below
		bubble.Pass(time.Second)
		remove()
		require.NoError(b, client.Close())
		require.NoError(b, <-done)
		require.Zero(b, lock.holdings())
	})
}

// fn's context behaves like Do's for package context, and also ends with the lease.
func TestDoPassesTheCauseOfADeadlineOn(t *testing.T) {
	forEachDoer(t, func(b *bubble.Bubble, lock doer, _ *testkit.Log) {
		type key struct{}
		ctx, cancel := context.WithTimeoutCause(context.WithValue(b.Context(), key{}, "value"), time.Second, errSale)
		defer cancel()
		err := lock.do(ctx, func(ctx context.Context) error {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			require.Equal(b, "value", child.Value(key{}))
			<-child.Done()
			for _, c := range []context.Context{ctx, child} {
				require.Equal(b, context.DeadlineExceeded, c.Err())
				require.Equal(b, errSale, context.Cause(c))
			}
			return context.Cause(child)
		})
		require.Equal(b, errSale, err)
	})
}
