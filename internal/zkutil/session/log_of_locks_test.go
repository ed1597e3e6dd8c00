package session_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestLogOfAConnection(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Troubled(recipes.WithLogger(log.Logger(slog.LevelDebug)))
		server := f.Srv.Addr()
		require.Equal(f, []string{
			fmt.Sprintf("level=INFO msg=connected server=%s session_timeout=6s asked=6s", server),
		}, locks.TakeLog(log))

		f.CutAndReconnect(client)
		require.Equal(f, []string{
			fmt.Sprintf("level=INFO msg=suspended server=%s err=EOF", server),
			fmt.Sprintf("level=INFO msg=reconnected server=%s after=0s new_session=false leases_lost=0", server),
		}, locks.TakeLog(log), "zk.Conn does not repeat it")

		over := f.Outage()
		bubble.Pass(time.Second)
		over()
		bubble.Pass(time.Second)
		lines := locks.TakeLog(log)
		require.Len(f, lines, 3)
		require.Equal(f, `level=DEBUG msg="connection attempt failed" err="dial pipe: connection refused"`, lines[1])
		require.Regexp(f, `^level=INFO msg=reconnected server=\S+ after=1(\.\d+)?s new_session=false leases_lost=0$`, lines[2])
		require.NoError(f, client.Close())
		require.Equal(f, []string{"level=DEBUG msg=closed"}, locks.TakeLog(log))
	})
}

// A client without holds and waiters logs its loss as well.
func TestLogOfAnIdleLoss(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Troubled(recipes.WithLogger(log.Logger(slog.LevelInfo)))
		locks.TakeLog(log)
		f.ExpireUnheard(client)
		bubble.Pass(time.Minute)
		lines := locks.TakeLog(log)
		require.Len(f, lines, 3)
		require.Regexp(f, `^level=INFO msg=suspended server=\S+ err=EOF$`, lines[0])
		require.Regexp(f, `^level=WARN msg="session lost" server=\S+ last_proof=none err="session lost: the servers ended it"$`, lines[1])
		require.Regexp(f, `^level=INFO msg=reconnected server=\S+ after=\S+ new_session=true leases_lost=0$`, lines[2])
	})
}

// The session that is lost without a lease was proven by the lease before.
func TestLogOfALossAfterALease(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Troubled(recipes.WithLogger(log.Logger(slog.LevelInfo)))
		lease, err := f.Mutex(client).Acquire(f.Context())
		require.NoError(f, err)
		require.NoError(f, lease.Release())
		proof := client.Health().LastProof
		locks.TakeLog(log)
		over := f.Outage()
		bubble.Pass(time.Minute)
		lines := locks.TakeLog(log)
		require.Len(f, lines, 2)
		require.Contains(f, lines[1], `msg="session lost"`)
		require.Contains(f, lines[1], "last_proof="+locks.Stamp(proof))
		over()
	})
}

// The local deadline precedes the server's expiry.
func TestLogOfALoss(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Troubled(recipes.WithLogger(log.Logger(slog.LevelInfo)), recipes.WithID("web-1"))
		m := f.Mutex(client)
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		locks.TakeLog(log)
		proof, heldFrom := client.Health().LastProof, time.Now()
		over := f.Outage()
		require.ErrorIs(f, f.Cause(lease), recipes.ErrSessionLost)
		held := time.Since(heldFrom) + bubble.Moment
		lines := locks.TakeLog(log)
		require.Len(f, lines, 3)
		require.Equal(f, fmt.Sprintf(`level=WARN msg="lease lost" path=%s token=%d id=web-1 held=%v last_proof=%s cause="session lost"`,
			locks.Path, lease.FencingToken(), held, locks.Stamp(proof)), lines[1])
		require.Equal(f, fmt.Sprintf(`level=WARN msg="session lost" server=%s last_proof=%s err="session lost: no proof that it is still alive"`,
			f.Srv.Addr(), locks.Stamp(proof)), lines[2])
		over()
		bubble.Pass(time.Second)
		lines = locks.TakeLog(log)
		require.Len(f, lines, 1)
		require.Regexp(f, `^level=INFO msg=reconnected server=\S+ after=[5-9](\.\d+)?s new_session=false leases_lost=1$`, lines[0], "since the suspension; the session survived")
		f.CutAndReconnect(client)
		lines = locks.TakeLog(log)
		require.Contains(f, lines[len(lines)-1], "leases_lost=0", "since the latest reconnect")
	})
}

func TestLogOfADeletion(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		m := f.Mutex(f.Client(recipes.WithLogger(log.Logger(slog.LevelInfo))), mutex.WithID("mine"))
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		bubble.Pass(time.Second)
		locks.TakeLog(log)
		require.NoError(f, f.Client().Conn().Delete(lease.Path(), -1))
		require.ErrorIs(f, f.Cause(lease), recipes.ErrNodeDeleted)
		lines := locks.TakeLog(log)
		require.Len(f, lines, 1)
		require.Regexp(f, `^level=WARN msg="lease lost" path=/locks/a token=\d+ id=mine held=\S+ last_proof=\d\S+ cause="znode deleted by another client"$`, lines[0])
	})
}

// Regular ends are logged at Debug, if at all.
func TestLogOfALeaseThatEndsInOrder(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Client(recipes.WithLogger(log.Logger(slog.LevelDebug)), recipes.WithID("web-1"))
		m := f.Mutex(client)
		locks.TakeLog(log)
		require.NoError(f, bubble.Acquire(f.T, m.Acquire).Release())
		require.Empty(f, locks.TakeLog(log))
		lease := bubble.Acquire(f.T, m.Acquire)
		require.NoError(f, client.Close())
		require.Equal(f, []string{
			fmt.Sprintf(`level=DEBUG msg="lease ended" path=%s token=%d id=web-1 held=0s cause=closed`, locks.Path, lease.FencingToken()),
			"level=DEBUG msg=closed",
		}, locks.TakeLog(log))
	})
}

func TestLogOfAShortTimeout(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Troubled(recipes.WithSessionTimeout(10*time.Second), recipes.WithLogger(log.Logger(slog.LevelInfo)))
		require.Equal(f, []string{
			fmt.Sprintf("level=INFO msg=connected server=%s session_timeout=4s asked=10s", f.Srv.Addr()),
			`level=WARN msg="server grants a session timeout far below the requested one" session_timeout=4s asked=10s`,
		}, locks.TakeLog(log), "in this order")
		f.CutAndReconnect(client)
		require.Len(f, locks.TakeLog(log), 2, "once, until it changes")
		f.Srv.SetSessionTimeouts(time.Second, 2*time.Second)
		f.CutAndReconnect(client)
		lines := locks.TakeLog(log)
		require.Len(f, lines, 4)
		require.Contains(f, lines[1], "msg=reconnected")
		require.Equal(f, []string{
			`level=WARN msg="server grants a shorter session timeout than before; the servers' limits differ or were lowered" session_timeout=2s before=4s`,
			`level=WARN msg="server grants a session timeout far below the requested one" session_timeout=2s asked=10s`,
		}, lines[2:])
	}, zktest.WithSessionTimeouts(time.Second, 4*time.Second))
}

func TestLogOfASlowWait(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		since := time.Now().Add(bubble.Moment)
		holder := bubble.Acquire(f.T, f.Mutex(f.Client(recipes.WithID("the holder"))).Acquire)
		second := f.Waiting(f.Context(), f.Mutex(f.Client()))
		client := f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithSlowWait(90*time.Second))
		third := f.Waiting(f.Context(), f.Mutex(client))
		bubble.Pass(90*time.Second - 2*bubble.Moment)
		require.Empty(f, log.Take())
		bubble.Pass(2 * bubble.Moment)
		require.Equal(f, []string{
			fmt.Sprintf(`level=WARN msg="slow wait" path=%s waited=1m30s position=3 waiters=2 holder="the holder" since=%s`, locks.Path, since.Format("2006-01-02T15:04:05.000Z07:00")),
		}, locks.TakeLog(log))
		bubble.Pass(10 * time.Minute)
		require.Len(f, locks.TakeLog(log), 10, "a line a minute")
		require.NoError(f, holder.Release())
		lease := bubble.Granted(f, second)
		require.NoError(f, lease.Release())
		require.NoError(f, bubble.Granted(f, third).Release())
	})
}

// However many goroutines wait for a path, the log has a line a minute.
func TestLogOfManySlowWaits(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		holder := bubble.Acquire(f.T, f.Mutex(f.Client(recipes.WithID("the holder"))).Acquire)
		client := f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)))
		ctx, cancel := context.WithCancel(f.Context())
		var waiters []<-chan bubble.Outcome[*recipes.Lease]
		for range 40 {
			waiters = append(waiters, f.Waiting(ctx, f.Mutex(client)))
			bubble.Pass(100 * time.Millisecond)
		}
		for range 5 {
			bubble.Pass(time.Minute)
			lines := locks.TakeLog(log)
			require.Len(f, lines, 1)
			require.Contains(f, lines[0], ` waiters=40 holder="the holder" `)
		}
		cancel()
		for _, waiter := range waiters {
			require.ErrorIs(f, (<-waiter).Err, context.Canceled)
		}
		require.NoError(f, holder.Release())
	})
}

// outages start an outage, and return a function that ends it.
var outages = map[string]func(f *locks.Fixture) (end func()){
	"stopped": func(f *locks.Fixture) func() { return f.Outage() },
	"frozen": func(f *locks.Fixture) func() {
		f.Srv.Freeze(f.Srv.Addr())
		return func() { f.Srv.Heal() }
	},
}

// In an outage the lines about slow waits are on time, without the holder. Nothing piles up: neither goroutines, nor lines and
// reads for the end of the outage.
func TestLogOfSlowWaitsInAnOutage(t *testing.T) {
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			locks.Run(t, func(f *locks.Fixture) {
				const paths, minutes = 5, 15
				log := &testkit.Log{}
				client, other := f.Troubled(recipes.WithLogger(log.Logger(slog.LevelWarn))), f.Client()
				ctx, cancel := context.WithCancel(f.Context())
				var waiters []<-chan bubble.Outcome[*recipes.Lease]
				for i := range paths {
					path := fmt.Sprint(locks.Path, i)
					holder := bubble.Acquire(f.T, locks.MutexOn(f.T, other, path).Acquire)
					defer func() { require.NoError(f, holder.Release()) }()
					waiters = append(waiters, bubble.Start(ctx, locks.MutexOn(f.T, client, path).Acquire))
				}
				bubble.Pass(30 * time.Second)
				end := begin(f)
				bubble.Pass(5 * time.Second)
				before := runtime.NumGoroutine()
				bubble.Pass(minutes * time.Minute)
				require.LessOrEqual(f, runtime.NumGoroutine(), before+2*paths)
				lines := slowWaits(log)
				require.InDelta(f, paths*minutes, len(lines), 2*paths)
				require.Regexp(f, `path=/locks/a\d waited=\d+m\S+ position=\d err="`, lines[len(lines)-1])
				reads := f.Srv.Observe()
				defer reads.Stop()
				end()
				bubble.Pass(10 * time.Second)
				require.Less(f, len(slowWaits(log)), 2*paths)
				require.Less(f, reads.Count(zktest.OpGetChildren2), 5*paths)
				bubble.Pass(time.Minute)
				require.Contains(f, strings.Join(slowWaits(log), ""), " holder=")
				cancel()
				for _, waiter := range waiters {
					require.ErrorIs(f, (<-waiter).Err, context.Canceled)
				}
			})
		})
	}
}

// A wait that begins in an outage, before it has a znode, is logged as well, with one line a minute per path, for any number of
// callers.
func TestLogOfSlowWaitsThatBeginInAnOutage(t *testing.T) {
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			locks.Run(t, func(f *locks.Fixture) {
				const callers, minutes = 100, 15
				log := &testkit.Log{}
				m := f.Mutex(f.Troubled(recipes.WithLogger(log.Logger(slog.LevelWarn))))
				end := begin(f)
				ctx, cancel := context.WithCancel(f.Context())
				var waiters []<-chan bubble.Outcome[*recipes.Lease]
				for range callers {
					waiters = append(waiters, bubble.Start(ctx, m.Acquire))
				}
				bubble.Pass(time.Minute - bubble.Moment)
				require.Empty(f, slowWaits(log))
				before := runtime.NumGoroutine()
				bubble.Pass(minutes * time.Minute)
				require.LessOrEqual(f, runtime.NumGoroutine(), before+callers/10)
				lines := slowWaits(log)
				require.InDelta(f, minutes, len(lines), 3)
				require.Regexp(f, `msg="slow wait" path=/locks/a waited=1m\S* err="`, lines[0])
				end()
				cancel()
				for _, waiter := range waiters {
					require.ErrorIs(f, (<-waiter).Err, context.Canceled)
				}
			})
		})
	}
}

// An outage begins while a waiter with two contenders ahead lists the queue or sets a watch. The wait is logged all the same.
func TestLogOfASlowWaitWhoseRequestFailsInAnOutage(t *testing.T) {
	for name, request := range map[string]struct {
		op  zktest.Op
		why func(f *locks.Fixture, leave func()) // leave ends the wait of the contender ahead
	}{
		"list":            {zktest.OpGetChildren2, func(_ *locks.Fixture, leave func()) { leave() }},
		"watch":           {zktest.OpGetData, func(_ *locks.Fixture, leave func()) { leave() }},
		"watch once more": {zktest.OpGetData, func(f *locks.Fixture, _ func()) { f.Srv.Disconnect() }},
	} {
		t.Run(name, func(t *testing.T) {
			locks.Run(t, func(f *locks.Fixture) {
				log := &testkit.Log{}
				client, other := f.Troubled(recipes.WithLogger(log.Logger(slog.LevelWarn))), f.Client()
				holder := bubble.Acquire(f.T, f.Mutex(other).Acquire)
				ctx, leave := context.WithCancel(f.Context())
				defer leave()
				f.Waiting(ctx, f.Mutex(other))
				waiting, cancel := context.WithCancel(f.Context())
				waiter := f.Waiting(waiting, f.Mutex(client))
				f.Srv.Delay(request.op, 20*time.Second)
				request.why(f, leave)
				bubble.Pass(time.Second)
				end := f.Outage()
				bubble.Pass(2 * time.Minute)
				require.NotEmpty(f, slowWaits(log))
				end()
				cancel()
				require.ErrorIs(f, (<-waiter).Err, context.Canceled)
				_ = holder.Release()
			})
		})
	}
}

// slowWaits are the lines about slow waits.
func slowWaits(log *testkit.Log) (lines []string) {
	for _, line := range locks.TakeLog(log) {
		if strings.Contains(line, `msg="slow wait"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestLogOfASlowHold(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithSlowHold(30*time.Second), recipes.WithID("web-1"))
		m := f.Mutex(client)
		lease := bubble.Acquire(f.T, m.Acquire)
		bubble.Pass(30*time.Second - 2*bubble.Moment)
		require.Empty(f, locks.TakeLog(log))
		bubble.Pass(2 * bubble.Moment)
		require.Equal(f, []string{
			fmt.Sprintf(`level=WARN msg="slow hold" path=%s token=%d id=web-1 held=30s`, locks.Path, lease.FencingToken()),
		}, locks.TakeLog(log))
		bubble.Pass(10 * time.Minute)
		require.NoError(f, lease.Release())
		require.NoError(f, bubble.Acquire(f.T, m.Acquire).Release())
		bubble.Pass(10 * time.Minute)
		require.Empty(f, locks.TakeLog(log), "once, and never after the end")
	})
}

// Durations have their units in JSON, too.
func TestLogOfDurationsInJSON(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		var log bytes.Buffer
		f.Client(recipes.WithLogger(slog.New(slog.NewJSONHandler(&log, nil))))
		bubble.Pass(bubble.Moment)
		require.Contains(f, log.String(), `"session_timeout":"6s","asked":"6s"`)
	})
}

// A wait that ends early, and one of a client without WithSlowWait, are not logged.
func TestNoLogOfAShortWait(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		for _, limit := range []time.Duration{time.Minute, 0} {
			log := &testkit.Log{}
			client := f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithSlowWait(limit))
			holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
			waiter := f.Waiting(f.Context(), f.Mutex(client))
			if limit == 0 {
				bubble.Pass(10 * time.Minute)
			}
			bubble.Pass(30 * time.Second)
			require.NoError(f, holder.Release())
			require.NoError(f, bubble.Granted(f, waiter).Release())
			bubble.Pass(10 * time.Minute)
			require.Empty(f, log.Take())
		}
	})
}

func TestLogOfAWaitForOneself(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		client := f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithID("web-1"), recipes.WithSlowWait(0))
		m := f.Mutex(client)
		lease := bubble.Acquire(f.T, m.Acquire)
		for range 3 {
			ctx, cancel := context.WithTimeout(f.Context(), 2*time.Second)
			_, err := m.Acquire(ctx) // the context is not that of the lease
			cancel()
			require.ErrorIs(f, err, context.DeadlineExceeded)
		}
		want := []string{`level=WARN msg="waiting for a lock that the same client holds" path=/locks/a holder=web-1`}
		require.Equal(f, want, locks.TakeLog(log), "goroutines may do that all the time: once a minute")
		bubble.Pass(time.Minute)
		waiting := f.Waiting(f.Context(), m)
		bubble.Pass(2 * time.Second)
		require.Equal(f, want, locks.TakeLog(log))
		_, err := m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		require.NoError(f, lease.Release())
		require.NoError(f, bubble.Granted(f, waiting).Release())

		holder := bubble.Acquire(f.T, f.Mutex(f.Client()).Acquire)
		bubble.Pass(time.Minute)
		waiting = f.Waiting(f.Context(), m)
		bubble.Pass(2 * time.Second)
		require.NoError(f, holder.Release())
		require.NoError(f, bubble.Granted(f, waiting).Release())
		require.Empty(f, locks.TakeLog(log), "another client's")

		bubble.Pass(time.Minute)
		for range 100 { // goroutines of one client that wait for each other for less than a second each
			holder := bubble.Acquire(f.T, m.Acquire)
			waiting := f.Waiting(f.Context(), m)
			bubble.Pass(900 * time.Millisecond)
			require.NoError(f, holder.Release())
			require.NoError(f, bubble.Granted(f, waiting).Release())
		}
		require.Empty(f, locks.TakeLog(log), "of short holds")
	})
}

// A deletion that an ACL forbids is retried, but an operator has to act.
func TestLogOfARefusal(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		m := f.Mutex(f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithOperationTimeout(time.Second)))
		lease := bubble.Acquire(f.T, m.Acquire)
		changeACL := func(acl []zk.ACL) {
			_, err := f.Client().Conn().SetACL(locks.Path, acl, -1)
			require.NoError(f, err)
		}
		changeACL(zk.WorldACL(zk.PermAll &^ zk.PermDelete))
		require.ErrorIs(f, lease.Release(), recipes.ErrNodeNotDeleted)
		bubble.Pass(time.Minute)
		lines := locks.TakeLog(log)
		require.Len(f, lines, 1, "once, although it is repeated")
		require.Regexp(f, `^level=ERROR msg="delete failed; retrying" znode=/locks/a/\S+ err="no permission to delete children of /locks/a .*"$`, lines[0])
		changeACL(zk.WorldACL(zk.PermAll))
		bubble.Pass(time.Minute)
		require.Empty(f, f.Contenders())
	})
}

func TestTextsOfALease(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client(recipes.WithID("web-1")), mutex.WithName("goods"))
		lease := bubble.Acquire(f.T, m.Acquire)
		log := &testkit.Log{}
		log.Logger(slog.LevelInfo).Info("m", "lock", m, "lease", lease)
		require.Equal(f, []string{fmt.Sprintf(
			"level=INFO msg=m lock.recipe=mutex lock.path=/locks/a lock.id=web-1 lock.name=goods"+
				" lease.recipe=mutex lease.path=/locks/a lease.znode=%s lease.token=%d lease.id=web-1", lease.Path(), lease.FencingToken())}, log.Take())
		require.Equal(f, "mutex /locks/a", m.String())
		require.Equal(f, fmt.Sprintf("mutex /locks/a, token %d", lease.FencingToken()), lease.String())
		require.Equal(f, m.String()+"; "+lease.String(), fmt.Sprintf("%+v; %s", m, lease))
		require.NoError(f, lease.Release())
	})
}

func TestHealth(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		began := time.Now()
		client := f.Troubled()
		require.Equal(f, recipes.Health{
			State: recipes.Connected, Since: began, Server: f.Srv.Addr(), SessionTimeout: testclient.SessionTimeout,
		}, client.Health())
		lease := bubble.Acquire(f.T, f.Mutex(client).Acquire)
		require.Equal(f, began.Add(bubble.Moment), client.Health().LastProof, "the write that made the znode")
		over := f.Outage()
		h := client.Health()
		require.Equal(f, recipes.Suspended, h.State)
		require.Equal(f, began.Add(bubble.Moment), h.Since)
		require.Empty(f, h.Server)
		require.Error(f, h.Err)
		bubble.Pass(time.Minute)
		h = client.Health()
		require.Equal(f, recipes.Lost, h.State)
		require.Error(f, h.Err)
		over()
		bubble.Pass(time.Minute)
		h = client.Health()
		require.Equal(f, recipes.Connected, h.State)
		require.Equal(f, f.Srv.Addr(), h.Server)
		require.Error(f, h.Err, "the latest failure stays")
		require.ErrorIs(f, lease.Release(), recipes.ErrSessionLost)
		require.NoError(f, client.Close())
		h = client.Health()
		require.Equal(f, recipes.Closed, h.State)
		require.Empty(f, h.Server)
	})
}
