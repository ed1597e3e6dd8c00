package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// running starts Do in the background, and returns when its function runs. The function returns result windDown after the end of its
// context. stopped gets the cause of that end, and done the error of Do.
func running(b *bubble.Bubble, lock doer, windDown time.Duration, result error) (stopped <-chan error, done <-chan error) {
	b.Helper()
	causes, ended := make(chan error, 1), make(chan error, 1)
	go func() { // ends with Do; joined by the receiver of ended
		ended <- lock.do(b.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			bubble.Pause(windDown)
			return result
		})
	}()
	bubble.Pass(bubble.Moment)
	return causes, ended
}

// A Shutdown ends the context of a function of Do, and waits for the function. Its znodes stay until then, and a rival does not start beside it.
func TestShutdownWaitsForAFunctionOfDo(t *testing.T) {
	for end, shutdown := range map[string]func(*recipes.Client) error{
		"shutdown": func(c *recipes.Client) error { return c.Shutdown(context.Background()) },
		"close":    (*recipes.Client).Close,
	} {
		for name := range rivals {
			t.Run(end+"/"+name, func(t *testing.T) {
				bubble.Run(t, func(b *bubble.Bubble) {
					client := b.Troubled()
					stopped, done := running(b, doers(b, client)[name], 3*time.Second, errSale)
					rival := "write lock"
					if !strings.HasSuffix(name, "lock") || name == "multilock" {
						rival = name
					}
					if name == "semaphore" { // two permits
						_, second := running(b, doers(b, client)[name], 3*time.Second, errSale)
						defer func() { require.ErrorIs(b, <-second, errSale) }()
					}
					start := time.Now()
					startedAt := make(chan time.Time, 1)
					next := make(chan error, 1)
					other := doers(b, b.Client())[rival]
					go func() { // joined below
						next <- other.do(b.Context(), func(context.Context) error { startedAt <- time.Now(); return nil })
					}()
					require.NoError(b, shutdown(client))
					require.GreaterOrEqual(b, time.Since(start), 3*time.Second)
					require.Less(b, time.Since(start), 4*time.Second)
					require.ErrorIs(b, <-stopped, recipes.ErrClosed)
					err := <-done
					require.ErrorIs(b, err, errSale, "the result of the function")
					require.ErrorIs(b, err, recipes.ErrClosed)
					require.NoError(b, <-next)
					require.GreaterOrEqual(b, (<-startedAt).Sub(start), 3*time.Second)
					require.Len(b, b.Srv.Sessions(), 1, "the rival's")
				})
			})
		}
	}
}

// With a function of Do that ignores its context, Shutdown names it at the end of its own context, and Close after the default
// grace. The lock is kept as long as the function runs, and the client then ends by itself.
func TestShutdownNamesTheFunctionOfDoThatDoesNotReturn(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		log := &testkit.Log{}
		client := b.Troubled(recipes.WithLogger(log.Logger(slog.LevelWarn)))
		locks := doers(b, client)
		var ended []<-chan error
		for _, name := range []string{"mutex", "cohort", "multilock"} {
			_, done := running(b, locks[name], time.Hour, nil)
			ended = append(ended, done)
		}
		lease := acquire(b, client, "/locks/explicit")
		ctx, cancel := context.WithTimeout(b.Context(), 25*time.Second)
		defer cancel()
		start := time.Now()
		err := client.Shutdown(ctx)
		require.Equal(b, 25*time.Second, time.Since(start))
		require.ErrorIs(b, err, recipes.ErrStepDownGrace)
		require.ErrorContains(b, err, "recipes: shutdown: work is still running (mutex /cohort, mutex /plain, mutex /several/a, mutex /several/b): context deadline exceeded")
		require.ErrorIs(b, context.Cause(lease.Context()), recipes.ErrClosed)
		require.Empty(b, b.Srv.Children("/locks/explicit"), "a lease of an explicit Acquire ends at once")
		require.ErrorContains(b, client.Close(), "work is still running (mutex /cohort, ")
		bubble.Pass(50 * time.Minute)
		for _, name := range []string{"mutex", "cohort", "multilock"} {
			require.NotZero(b, locks[name].holdings(), name)
		}
		require.NoError(b, client.Shutdown(b.Context()))
		for _, done := range ended {
			require.ErrorIs(b, <-done, recipes.ErrClosed)
		}
		require.Equal(b, time.Hour, time.Since(start).Round(time.Second))
		require.Empty(b, b.Srv.Sessions())
	})
}

// While Shutdown waits for a function, other clients can have the locks that are held without one, whatever happens to the transaction that
// deletes their znodes.
func TestShutdownFreesLeasesBesideWork(t *testing.T) {
	for name, strike := range map[string]func(b *bubble.Bubble, gone *recipes.Lease) zktest.Fault{
		"executed":     func(*bubble.Bubble, *recipes.Lease) zktest.Fault { return zktest.Fault{} },
		"lost request": func(*bubble.Bubble, *recipes.Lease) zktest.Fault { return zktest.Fault{Lost: zktest.RequestLost} },
		"lost reply":   func(*bubble.Bubble, *recipes.Lease) zktest.Fault { return zktest.Fault{Lost: zktest.ReplyLost} },
		"refused":      func(*bubble.Bubble, *recipes.Lease) zktest.Fault { return zktest.Fault{Refusal: zktest.RefuseTimeout} },
		"a znode is deleted": func(b *bubble.Bubble, gone *recipes.Lease) zktest.Fault {
			b.Srv.Delete(gone.Path())
			return zktest.Fault{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Troubled()
				_, done := running(b, doers(b, client)["mutex"], 3*time.Second, nil)
				var leases []*recipes.Lease
				for i := range 3 {
					lease, err := busyMutex(b, client, fmt.Sprint("/leases/", i)).Acquire(b.Context())
					require.NoError(b, err)
					leases = append(leases, lease)
				}
				bubble.Pass(bubble.Moment)
				isStruck := false
				b.Srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Op != zktest.OpMulti || isStruck {
						return zktest.Fault{}
					}
					isStruck = true
					return strike(b, leases[1])
				})
				ended := make(chan error, 1)
				go func() { ended <- client.Shutdown(b.Context()) }() // joined below
				bubble.Pass(2 * time.Second)
				require.Empty(b, ended)
				require.True(b, isStruck)
				for _, lease := range leases {
					_, _, exists := b.Srv.Get(lease.Path())
					require.False(b, exists, lease)
				}
				require.NoError(b, <-ended)
				require.ErrorIs(b, <-done, recipes.ErrClosed)
			})
		})
	}
}

// Inside the function of Do, Shutdown and Close only ask, because they would wait for their caller.
func TestShutdownInsideAFunctionOfDo(t *testing.T) {
	for name := range rivals {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Troubled()
				lock, start := doers(b, client)[name], time.Now()
				other := acquire(b, client, "/locks/other")
				err := lock.do(b.Context(), func(ctx context.Context) error {
					require.NoError(b, client.Shutdown(context.Background()))
					require.NoError(b, client.Close())
					<-ctx.Done()
					require.ErrorIs(b, context.Cause(ctx), recipes.ErrClosed)
					require.ErrorIs(b, context.Cause(other.Context()), recipes.ErrClosed)
					bubble.Pass(time.Second)
					require.NotZero(b, lock.holdings())
					require.ErrorIs(b, lock.do(ctx, func(context.Context) error { return nil }), recipes.ErrClosed)
					return errSale
				})
				require.Equal(b, time.Second, time.Since(start))
				require.ErrorIs(b, err, errSale)
				require.NoError(b, client.Shutdown(b.Context()))
				require.Zero(b, lock.holdings())
			})
		})
	}
}

// The last of several functions under a znode frees it, whichever lease started the hold and however a function ends.
func TestShutdownWaitsForTheLastFunctionUnderAHold(t *testing.T) {
	for name, inner := range map[string]func() error{
		"return": func() error { return nil },
		"panic":  func() error { panic(errSale) },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				client := b.Troubled()
				m, err := mutex.New(client, "/locks/a")
				require.NoError(b, err)
				lease := bubble.Acquire(b, m.Acquire)
				ended := make(chan struct{})
				go func() { // joined below
					defer close(ended)
					defer func() { _ = recover() }()
					_ = m.Do(lease.Context(), func(ctx context.Context, outer *recipes.Lease) error {
						return m.Do(ctx, func(ctx context.Context, own *recipes.Lease) error {
							<-ctx.Done()
							_ = errors.Join(own.Release(), outer.Release(), lease.Release()) // too late: they ended with ErrClosed
							bubble.Pause(2 * time.Second)
							return inner()
						})
					})
				}()
				bubble.Pass(bubble.Moment)
				time.AfterFunc(1900*time.Millisecond, func() {
					if len(b.Srv.Children("/locks/a")) != 1 {
						b.Error("the znode is gone while the function runs")
					}
				})
				start := time.Now()
				require.NoError(b, client.Shutdown(b.Context()))
				require.Equal(b, 2*time.Second, time.Since(start))
				require.Empty(b, b.Srv.Children("/locks/a"))
				<-ended
			})
		})
	}
}

// Shutdown also waits for a function that released its lease, and a rival can acquire the lock meanwhile.
func TestShutdownWaitsForAFunctionThatReleased(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		m, err := mutex.New(client, "/locks/a")
		require.NoError(b, err)
		done := make(chan error, 1)
		go func() { // joined below
			done <- m.Do(b.Context(), func(_ context.Context, lease *recipes.Lease) error {
				err := lease.Release()
				bubble.Pause(3 * time.Second)
				return err
			})
		}()
		bubble.Pass(bubble.Moment)
		require.Empty(b, b.Srv.Children("/locks/a"))
		start := time.Now()
		require.NoError(b, client.Shutdown(b.Context()))
		require.InDelta(b, 3*time.Second, time.Since(start), float64(bubble.Moment))
		require.NoError(b, <-done)
	})
}

// The functions of a multilock's Do may belong to several clients: each waits, and keeps its own znodes.
func TestShutdownOfOneClientOfAMultilock(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		first, second := b.Client(), b.Client()
		one, err := mutex.New(first, "/locks/a")
		require.NoError(b, err)
		two, err := mutex.New(second, "/locks/b")
		require.NoError(b, err)
		both, err := multilock.New(one, two)
		require.NoError(b, err)
		done := make(chan error, 1)
		go func() { // joined below
			done <- both.Do(b.Context(), func(ctx context.Context, _ *multilock.Lease) error {
				<-ctx.Done()
				bubble.Pause(3 * time.Second)
				return nil
			})
		}()
		bubble.Pass(bubble.Moment)
		time.AfterFunc(2*time.Second, func() {
			if count(b, []string{"/locks/a", "/locks/b"}) != 2 {
				b.Error("a znode is gone while the function runs")
			}
		})
		start := time.Now()
		require.NoError(b, second.Shutdown(b.Context()))
		require.Equal(b, 3*time.Second, time.Since(start))
		require.ErrorIs(b, <-done, recipes.ErrClosed)
		require.Empty(b, b.Srv.Children("/locks/b"))
		require.Len(b, b.Srv.Sessions(), 1)
	})
}

// The leader's function uses a lock: both end in order, the znode of the lock with its function.
func TestShutdownDuringADoInATerm(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		lock := doers(b, client)["mutex"]
		leader, err := selector.New(client, "/services/billing", func(ctx context.Context, _ *recipes.Lease) error {
			err := lock.do(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				bubble.Pause(time.Second)
				return nil
			})
			bubble.Pause(time.Second)
			return err
		})
		require.NoError(b, err)
		require.NoError(b, leader.Start())
		bubble.Pass(bubble.Moment)
		for after, want := range map[time.Duration][2]int{900 * time.Millisecond: {1, 1}, 1900 * time.Millisecond: {0, 1}} {
			time.AfterFunc(after, func() {
				if got := [2]int{lock.holdings(), len(b.Srv.Children("/services/billing"))}; got != want {
					b.Errorf("%v after Shutdown: %v znodes, not %v", after, got, want)
				}
			})
		}
		start := time.Now()
		require.NoError(b, client.Shutdown(b.Context()))
		require.Equal(b, 2*time.Second, time.Since(start))
	})
}

// The session is lost while Shutdown waits: nothing can hold a rival back, and Shutdown still waits for the function.
func TestSessionLostWhileShutdownWaits(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		client := b.Troubled()
		lock := doers(b, client)["mutex"]
		_, done := running(b, lock, time.Minute, nil)
		ended := make(chan error, 1)
		go func() { ended <- client.Shutdown(b.Context()) }() // joined below
		bubble.Pass(time.Second)
		b.ExpireUnheard(client)
		start := time.Now()
		require.NoError(b, doers(b, b.Client())["mutex"].do(b.Context(), func(context.Context) error { return nil }))
		require.Less(b, time.Since(start), time.Second)
		require.NoError(b, <-ended)
		require.ErrorIs(b, <-done, recipes.ErrClosed)
		require.Zero(b, lock.holdings())
	})
}

// The client's server and another one hang while work continues after its end. The session moves to a third server before trust
// ends, as it would for a lease, and the znode stays. The same holds after an outage in which the session was no longer proven,
// but did not end.
func TestServersHangWhileEndedWorkContinues(t *testing.T) {
	const timeout, windDown = 6 * time.Second, 25 * time.Second
	work := func(ctx context.Context, _ *recipes.Lease) error {
		<-ctx.Done()
		bubble.Pause(windDown)
		return nil
	}
	for name, begin := range map[string]func(b *bubble.Bubble, client *recipes.Client) (end func(context.Context) error){
		"function of Do": func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
			m, err := mutex.New(client, "/locks/a")
			require.NoError(b, err)
			go func() { _ = m.Do(b.Context(), work) }() // ends with Shutdown
			return client.Shutdown
		},
		"leader of a client that ends": func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
			leader, err := selector.New(client, "/locks/a", work)
			require.NoError(b, err)
			require.NoError(b, leader.Start())
			return client.Shutdown
		},
		"leader that steps down": func(b *bubble.Bubble, client *recipes.Client) func(context.Context) error {
			leader, err := selector.New(client, "/locks/a", work)
			require.NoError(b, err)
			require.NoError(b, leader.Start())
			return func(context.Context) error {
				err := leader.Close()
				if errors.Is(err, recipes.ErrStepDownGrace) {
					return client.Shutdown(b.Context())
				}
				return err
			}
		},
	} {
		for _, outage := range []time.Duration{0, timeout} { // of the quorum: trust ends, and no server can expire the session
			for phase := 100 * time.Millisecond; phase < 6*time.Second; phase += 1100 * time.Millisecond {
				t.Run(fmt.Sprintf("%s/outage of %v/after %v", name, outage, phase), func(t *testing.T) {
					bubble.Run(t, func(b *bubble.Bubble) {
						servers := b.Srv.Addrs()[:3]
						client := zkclient.ConnectTo(b, b.Srv, servers, recipes.WithSessionTimeout(timeout))
						end := begin(b, client)
						bubble.Pass(time.Second)
						ended, start := make(chan error, 1), time.Now()
						go func() { ended <- end(b.Context()) }() // joined below
						loseQuorum(b, outage)
						bubble.Pass(phase)
						b.Srv.Freeze(client.Conn().Server())
						b.Srv.SlowHandshakes(timeout / 8)
						b.Srv.Freeze(servers[(slices.Index(servers, client.Conn().Server())+1)%len(servers)])
						for time.Since(start) < windDown-time.Second {
							bubble.Pass(time.Second)
							require.Len(b, b.Srv.Children("/locks/a"), 1)
						}
						require.NoError(b, <-ended)
						require.Empty(b, b.Srv.Children("/locks/a"))
					}, zktest.WithServers(5))
				})
			}
		}
	}
}

// loseQuorum stops three of five servers for a time, and returns when the clients are connected again. An outage of 0 changes nothing.
func loseQuorum(b *bubble.Bubble, outage time.Duration) {
	b.Helper()
	if outage == 0 {
		return
	}
	b.Srv.Stop(b.Srv.Addrs()[2:]...)
	bubble.Pass(outage)
	require.NoError(b, b.Srv.Restart(b.Srv.Addrs()[2:]...))
	bubble.Pass(2 * time.Second)
}
