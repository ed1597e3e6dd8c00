package mutex_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// logged returns the lines of a log once nothing happens any more.
func logged(log *testkit.Log) []string {
	pass(moment)
	return log.Take()
}

// stamp is a time as the log shows it.
func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000Z07:00") }

func TestLogOfAConnection(t *testing.T) {
	inBubble(t, func(f *fixture) {
		log := &testkit.Log{}
		client := f.troubled(recipes.WithLogger(log.Logger(slog.LevelDebug)))
		server := f.srv.Addr()
		require.Equal(f, []string{
			fmt.Sprintf("level=INFO msg=connected server=%s session_timeout=6s asked=6s", server),
		}, logged(log))

		f.cutAndReconnect(client)
		require.Equal(f, []string{
			fmt.Sprintf("level=INFO msg=suspended server=%s err=EOF", server),
			fmt.Sprintf("level=INFO msg=reconnected server=%s after=0s new_session=false", server),
		}, logged(log), "zk.Conn does not repeat it")

		over := f.outage()
		pass(time.Second)
		over()
		pass(time.Second)
		lines := logged(log)
		require.Len(f, lines, 3)
		require.Equal(f, `level=DEBUG msg="connection attempt failed" err="dial pipe: connection refused"`, lines[1])
		require.Regexp(f, `^level=INFO msg=reconnected server=\S+ after=1(\.\d+)?s new_session=false$`, lines[2])
		require.NoError(f, client.Close())
		require.Equal(f, []string{"level=DEBUG msg=closed"}, logged(log))
	})
}

// A client that holds nothing and waits for nothing tells of its loss as well.
func TestLogOfAnIdleLoss(t *testing.T) {
	inBubble(t, func(f *fixture) {
		log := &testkit.Log{}
		client := f.troubled(recipes.WithLogger(log.Logger(slog.LevelInfo)))
		logged(log)
		f.expireUnheard(client)
		pass(time.Minute)
		lines := logged(log)
		require.Len(f, lines, 3)
		require.Regexp(f, `^level=INFO msg=suspended server=\S+ err=EOF$`, lines[0])
		require.Regexp(f, `^level=WARN msg="session lost" server=\S+ last_proof=\S+ err="session lost: the servers have ended it"$`, lines[1])
		require.Regexp(f, `^level=INFO msg=reconnected server=\S+ after=\S+ new_session=true$`, lines[2])
	})
}

// The local deadline comes before the server's word.
func TestLogOfALoss(t *testing.T) {
	inBubble(t, func(f *fixture) {
		log := &testkit.Log{}
		client := f.troubled(recipes.WithLogger(log.Logger(slog.LevelInfo)), recipes.WithID("web-1"))
		m := f.mutex(client)
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		logged(log)
		proof, heldFrom := client.Health().LastProof, time.Now()
		f.outage()
		require.ErrorIs(f, f.cause(lease), recipes.ErrSessionLost)
		held := time.Since(heldFrom) + moment
		lines := logged(log)
		require.Len(f, lines, 3)
		require.Equal(f, fmt.Sprintf(`level=WARN msg="lease lost" path=%s token=%d id=web-1 held=%v last_proof=%s cause="session lost"`,
			lock, lease.FencingToken(), held, stamp(proof)), lines[1])
		require.Equal(f, fmt.Sprintf(`level=WARN msg="session lost" server=%s last_proof=%s err="session lost: nothing proves that it is alive"`,
			f.srv.Addr(), stamp(proof)), lines[2])
	})
}

func TestLogOfADeletion(t *testing.T) {
	inBubble(t, func(f *fixture) {
		log := &testkit.Log{}
		m := f.mutex(f.client(recipes.WithLogger(log.Logger(slog.LevelInfo))), mutex.WithID("mine"))
		lease, err := m.Acquire(f.Context())
		require.NoError(f, err)
		pass(time.Second)
		logged(log)
		require.NoError(f, f.client().Conn().Delete(lease.Path(), -1))
		require.ErrorIs(f, f.cause(lease), recipes.ErrNodeDeleted)
		lines := logged(log)
		require.Len(f, lines, 1)
		require.Regexp(f, `^level=WARN msg="lease lost" path=/locks/a token=\d+ id=mine held=\S+ last_proof=\S+ cause="znode deleted by someone else"$`, lines[0])
	})
}

// What ends in order is told at Debug, if at all.
func TestLogOfALeaseThatEndsInOrder(t *testing.T) {
	inBubble(t, func(f *fixture) {
		log := &testkit.Log{}
		client := f.client(recipes.WithLogger(log.Logger(slog.LevelDebug)), recipes.WithID("web-1"))
		m := f.mutex(client)
		logged(log)
		require.NoError(f, acquire(f.T, m).Release())
		require.Empty(f, logged(log))
		lease := acquire(f.T, m)
		require.NoError(f, client.Close())
		require.Equal(f, []string{
			fmt.Sprintf(`level=DEBUG msg="lease ended" path=%s token=%d id=web-1 held=0s cause=closed`, lock, lease.FencingToken()),
			"level=DEBUG msg=closed",
		}, logged(log))
	})
}

func TestLogOfAShortTimeout(t *testing.T) {
	inBubble(t, func(f *fixture) {
		log := &testkit.Log{}
		client := f.troubled(recipes.WithSessionTimeout(10*time.Second), recipes.WithLogger(log.Logger(slog.LevelWarn)))
		want := `level=WARN msg="the server grants a session timeout far below the one asked for" session_timeout=4s asked=10s`
		require.Equal(f, []string{want}, logged(log))
		f.cutAndReconnect(client)
		require.Empty(f, logged(log), "once, until it changes")
	}, zktest.WithSessionTimeouts(time.Second, 4*time.Second))
}

func TestLogOfASlowWait(t *testing.T) {
	inBubble(t, func(f *fixture) {
		log := &testkit.Log{}
		since := time.Now().Add(moment)
		holder := acquire(f.T, f.mutex(f.client(recipes.WithID("the holder"))))
		second := f.waiting(f.Context(), f.mutex(f.client()))
		client := f.client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithSlowWait(90*time.Second))
		third := f.waiting(f.Context(), f.mutex(client))
		pass(90*time.Second - 2*moment)
		require.Empty(f, log.Take())
		pass(2 * moment)
		require.Equal(f, []string{
			fmt.Sprintf(`level=WARN msg="slow wait" path=%s waited=1m30s position=3 holder="the holder" since=%s`, lock, since.Format("2006-01-02T15:04:05.000Z07:00")),
		}, logged(log))
		pass(10 * time.Minute)
		require.NoError(f, holder.Release())
		lease := f.granted(second)
		pass(10 * time.Minute)
		require.Empty(f, log.Take(), "once a wait")
		require.NoError(f, lease.Release())
		require.NoError(f, f.granted(third).Release())
	})
}

// A wait that is over before its time, and one of a client that does not want to know, are not told.
func TestNoLogOfAShortWait(t *testing.T) {
	inBubble(t, func(f *fixture) {
		for _, limit := range []time.Duration{time.Minute, 0} {
			log := &testkit.Log{}
			client := f.client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithSlowWait(limit))
			holder := acquire(f.T, f.mutex(f.client()))
			waiter := f.waiting(f.Context(), f.mutex(client))
			if limit == 0 {
				pass(10 * time.Minute)
			}
			pass(30 * time.Second)
			require.NoError(f, holder.Release())
			require.NoError(f, f.granted(waiter).Release())
			pass(10 * time.Minute)
			require.Empty(f, log.Take())
		}
	})
}

func TestLogOfAWaitForOneself(t *testing.T) {
	inBubble(t, func(f *fixture) {
		log := &testkit.Log{}
		client := f.client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithID("web-1"), recipes.WithSlowWait(0))
		m := f.mutex(client)
		lease := acquire(f.T, m)
		for range 3 {
			ctx, cancel := context.WithTimeout(f.Context(), 2*time.Second)
			_, err := m.Acquire(ctx) // the context is not that of the lease
			cancel()
			require.ErrorIs(f, err, context.DeadlineExceeded)
		}
		want := []string{`level=WARN msg="waiting for a lock that the same client holds" path=/locks/a holder=web-1`}
		require.Equal(f, want, logged(log), "goroutines may do that all the time: once a minute")
		pass(time.Minute)
		waiting := f.waiting(f.Context(), m)
		pass(2 * time.Second)
		require.Equal(f, want, logged(log))
		_, err := m.TryAcquire(f.Context())
		require.ErrorIs(f, err, recipes.ErrNotAcquired)
		require.NoError(f, lease.Release())
		require.NoError(f, f.granted(waiting).Release())

		holder := acquire(f.T, f.mutex(f.client()))
		pass(time.Minute)
		waiting = f.waiting(f.Context(), m)
		pass(2 * time.Second)
		require.NoError(f, holder.Release())
		require.NoError(f, f.granted(waiting).Release())
		require.Empty(f, logged(log), "another client's")

		pass(time.Minute)
		for range 100 { // goroutines of one client, that wait for each other for less than a second each
			holder := acquire(f.T, m)
			waiting := f.waiting(f.Context(), m)
			pass(900 * time.Millisecond)
			require.NoError(f, holder.Release())
			require.NoError(f, f.granted(waiting).Release())
		}
		require.Empty(f, logged(log), "of short holds")
	})
}

// A deletion that a permission forbids goes on, but somebody has to do something.
func TestLogOfARefusal(t *testing.T) {
	inBubble(t, func(f *fixture) {
		log := &testkit.Log{}
		m := f.mutex(f.client(recipes.WithLogger(log.Logger(slog.LevelWarn)), recipes.WithOperationTimeout(time.Second)))
		lease := acquire(f.T, m)
		changeACL := func(acl []zk.ACL) {
			_, err := f.client().Conn().SetACL(lock, acl, -1)
			require.NoError(f, err)
		}
		changeACL(zk.WorldACL(zk.PermAll &^ zk.PermDelete))
		require.ErrorIs(f, lease.Release(), recipes.ErrNodeNotDeleted)
		pass(time.Minute)
		lines := logged(log)
		require.Len(f, lines, 1, "once, although it is repeated")
		require.Regexp(f, `^level=ERROR msg="delete failed, will be repeated" znode=/locks/a/\S+ err="no permission to delete children of /locks/a .*"$`, lines[0])
		changeACL(zk.WorldACL(zk.PermAll))
		pass(time.Minute)
		require.Empty(f, f.queue())
	})
}

func TestTextsOfALease(t *testing.T) {
	inBubble(t, func(f *fixture) {
		m := f.mutex(f.client(recipes.WithID("web-1")), mutex.WithName("goods"))
		lease := acquire(f.T, m)
		log := &testkit.Log{}
		log.Logger(slog.LevelInfo).Info("m", "lock", m, "lease", lease)
		require.Equal(f, []string{fmt.Sprintf(
			"level=INFO msg=m lock.recipe=mutex lock.path=/locks/a lock.id=web-1 lock.name=goods"+
				" lease.recipe=mutex lease.path=/locks/a lease.znode=%s lease.token=%d lease.id=web-1", lease.Path(), lease.FencingToken())}, log.Take())
		require.Equal(f, "mutex /locks/a", m.String())
		require.Equal(f, fmt.Sprintf("mutex /locks/a, token %d", lease.FencingToken()), lease.String())
		require.Equal(f, m.String()+"; "+lease.String(), fmt.Sprintf("%+v; %#v", m, lease), "no other verb shows more")
		require.NoError(f, lease.Release())
	})
}

func TestHealth(t *testing.T) {
	inBubble(t, func(f *fixture) {
		began := time.Now()
		client := f.troubled()
		require.Equal(f, recipes.Health{
			State: recipes.Connected, Since: began, Server: f.srv.Addr(), SessionTimeout: testclient.SessionTimeout,
		}, client.Health())
		lease := acquire(f.T, f.mutex(client))
		require.Equal(f, began.Add(moment), client.Health().LastProof, "the write that made the znode")
		over := f.outage()
		h := client.Health()
		require.Equal(f, recipes.Suspended, h.State)
		require.Equal(f, began.Add(moment), h.Since)
		require.Empty(f, h.Server)
		require.Error(f, h.Err)
		pass(time.Minute)
		h = client.Health()
		require.Equal(f, recipes.Lost, h.State)
		require.Error(f, h.Err)
		over()
		pass(time.Minute)
		h = client.Health()
		require.Equal(f, recipes.Connected, h.State)
		require.Equal(f, f.srv.Addr(), h.Server)
		require.Error(f, h.Err, "the latest failure stays")
		require.ErrorIs(f, lease.Release(), recipes.ErrSessionLost)
		require.NoError(f, client.Close())
		h = client.Health()
		require.Equal(f, recipes.Closed, h.State)
		require.Empty(f, h.Server)
	})
}
