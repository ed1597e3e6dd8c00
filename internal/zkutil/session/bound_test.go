package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// shortOutage is the longest time that a cut may cost where the servers resume no session.
const shortOutage = 1500 * time.Millisecond

// Where a session ends with its connection, a cut ends the hold at once. The next contender does not wait for the session
// timeout, because the new session deletes the znode of the old one.
func TestCutOfAHolderOnServersThatResumeNoSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
		holder, waiter := fixture.TwoClients(t, srv, 30*time.Second)
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		turn := bubble.Start(t.Context(), fixture.MutexOn(waiter, "/m").Acquire)
		fixture.Settle()
		start := time.Now()
		srv.Disconnect(fixture.SessionID(holder))
		at, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		require.Equal(t, start, at)
		got := <-turn
		require.NoError(t, got.Err)
		require.Less(t, got.At.Sub(start), shortOutage)
		require.NoError(t, got.Lease.Leave())
	})
}

// The same for a waiter: its old znode blocks no contender, and the waiter joins again at the tail.
func TestCutOfAWaiterOnServersThatResumeNoSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
		holder, waiter := fixture.TwoClients(t, srv, 30*time.Second)
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		first := bubble.Start(t.Context(), fixture.MutexOn(waiter, "/m").Acquire)
		fixture.Settle()
		second := bubble.Start(t.Context(), fixture.MutexOn(holder, "/m").Acquire)
		fixture.Settle()
		start := time.Now()
		srv.Disconnect(fixture.SessionID(waiter))
		bubble.Eventually(t, shortOutage, func() bool { return len(srv.Children("/m")) == 3 && fixture.SessionID(waiter) != 0 })
		require.NoError(t, e.Leave())
		got := <-second
		require.NoError(t, got.Err)
		require.Less(t, got.At.Sub(start), 2*shortOutage)
		require.NoError(t, got.Lease.Leave())
		got = <-first
		require.NoError(t, got.Err)
		require.NoError(t, got.Lease.Leave())
		require.Less(t, time.Since(start), 3*shortOutage)
		require.Empty(t, srv.Children("/m"))
	})
}

// A znode of the old session whose create was not answered is found by its uuid, and deleted.
func TestLostCreateOnServersThatResumeNoSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
		s := fixture.Connect(t, srv.Config(30*time.Second))
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave()) // the client knows what the server lacks
		start := time.Now()
		srv.DropReply(zktest.OpCreate, 1)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.Less(t, time.Since(start), shortOutage)
		require.Len(t, srv.Children("/m"), 1)
		require.NoError(t, e.Leave())
	})
}

// The znode of a hold that stands is not deleted by the session's reconnect: there is none while it stands. The hold ends before
// the delete is sent.
func TestHoldEndsBeforeItsZnodeIsDeleted(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
		s := fixture.Connect(t, srv.Config(30*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		deletes := 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete && r.Path == e.Path() {
				deletes++
				require.Error(t, e.Context().Err(), "deleted under a hold that stands")
			}
			return zktest.Fault{}
		})
		for range 3 {
			srv.Disconnect()
			bubble.Pass(shortOutage)
		}
		require.Equal(t, 1, deletes)
		require.Empty(t, srv.Children("/m"))
	})
}

// Nothing is gained by leaving a silent server, because the session would end with the connection. The hold stands until its trust
// has run out.
func TestSilentServerIsNotLeftWithAHoldThatEndsWithTheConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
		s := fixture.Connect(t, srv.Config(30*time.Second, srv.A, srv.B))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		dials := len(srv.Dialled())
		srv.SlowCommits(12 * time.Second) // more than T/6, and less than 2T/3
		bubble.Pass(3 * time.Minute)
		require.NoError(t, e.Context().Err())
		require.Len(t, srv.Dialled(), dials)
	})
}

// A user's watches on zk.Conn end with the session, as with an expired session.
func TestUserWatchesEndWithTheConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Put("/u", nil)
		_, _, events, err := s.Conn().GetW("/u")
		require.NoError(t, err)
		before := fixture.SessionID(s)
		srv.Disconnect()
		event := <-events
		require.Error(t, event.Err)
		bubble.Eventually(t, shortOutage, func() bool { return fixture.SessionID(s) != before && s.IsConnected() })
		require.Empty(t, srv.Log.Requests(zktest.OpSetWatches))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.NoError(t, e.Leave())
	})
}

// A thousand waiting sessions cost the quorum at most a hundred transactions a second where each ping is a transaction. None of
// them expires, and the grant that follows is trusted.
func TestWaitingSessionsCostFewTransactionsWherePingsAreTransactions(t *testing.T) {
	n, minutes := 1000, 2 // long enough for audits, or many sessions
	if testing.Short() || testkit.IsRaced {
		// As of Go 1.26, goroutines that find timers of their bubble due at the same time share one context of the race detector,
		// without a lock: with a thousand sessions, the process may die with SIGSEGV in runtime.timer.maybeRunChan.
		n, minutes = 50, 10
	}
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
		const timeout = 30 * time.Second
		holder := fixture.Connect(t, srv.Config(timeout))
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		turn := make(chan *session.Entry, 1)
		for range n {
			q := fixture.MutexOn(fixture.Connect(t, srv.Config(timeout)), "/m")
			go func() { // ends with ctx
				if e, err := q.Acquire(ctx); err == nil {
					turn <- e
				}
			}()
		}
		bubble.Pass(time.Minute)
		require.Len(t, srv.Children("/m"), n+1)
		before := lastZxid(t, holder)
		bubble.Pass(time.Duration(minutes) * time.Minute)
		commits := lastZxid(t, holder) - before
		limit := 100*float64(n)/1000 + 16.0/30 + 0.1 // of the waiters, and the holder's pings and heartbeats
		require.LessOrEqual(t, float64(commits)/float64(minutes*60), limit)
		require.Greater(t, float64(commits)/float64(minutes*60), 0.7*limit, "the sessions ping")
		require.NoError(t, e.Context().Err())
		require.Len(t, srv.Children("/m"), n+1, "no session has expired")
		require.NoError(t, e.Leave())
		next := <-turn
		require.GreaterOrEqual(t, time.Until(next.TrustedUntil()), timeout/5)
		cancel()
		require.NoError(t, next.Leave())
	})
}

// lastZxid returns the zxid of the latest transaction.
func lastZxid(t *testing.T, s *session.Session) int64 {
	t.Helper()
	require.NoError(t, s.Write(t.Context(), "/zookeeper", nil))
	_, stat, err := s.Conn().Exists("/zookeeper")
	require.NoError(t, err)
	return stat.Mzxid
}

// The hold ends with the connection even if there is no other server to connect to.
func TestCutEndsTheHoldWithoutANewSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
		s := fixture.Connect(t, srv.Config(30*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		start := time.Now()
		srv.Stop(srv.A)
		at, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		require.Equal(t, start, at)
		require.Equal(t, connstate.Lost, s.State())
		srv.Restart(srv.A)
	})
}

// A znode of the old session stays until T is over, so that a refused delete is repeated.
func TestRefusedDeleteIsRepeatedWhileTheOldSessionLives(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
		s := fixture.Connect(t, srv.Config(time.Minute))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		allow := srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		srv.Disconnect()
		<-e.Context().Done()
		bubble.Pass(2 * time.Second)
		allow()
		bubble.Eventually(t, 20*time.Second, func() bool { return len(srv.Children("/m")) == 0 })
	})
}

// A hang-up costs the session there, so the client asks for no operation that such a server may lack.
func TestNoOptionalOperationOnServersThatResumeNoSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
		holder, waiter := fixture.TwoClients(t, srv, 30*time.Second)
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/a/b").Acquire)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := fixture.MutexOn(waiter, "/a/b").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		bubble.Pass(3 * time.Minute) // the unused watch would be removed
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
		require.Len(t, srv.Log.Requests(zktest.OpConnect), 2)
	})
}
