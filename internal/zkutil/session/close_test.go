package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The bubble itself reports whatever Close does not join: a goroutine left is a
// deadlock of the bubble.

func TestCloseEndsHoldsAndWaits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
		synctest.Wait()
		start := time.Now()
		require.NoError(t, s.Close())
		require.ErrorIs(t, context.Cause(e.Context()), zkutil.ErrClosed)
		require.ErrorIs(t, (<-turn).Err, zkutil.ErrClosed)
		require.ErrorIs(t, e.Leave(), zkutil.ErrClosed)
		require.Equal(t, start, time.Now())
		require.Empty(t, srv.Children("/m"))
		require.Empty(t, srv.Sessions(), "the session was closed, not left to expire")
		require.NoError(t, s.Close(), "idempotent")
	})
}

func TestCloseConcurrently(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		var closers sync.WaitGroup
		for range 10 {
			closers.Go(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closers.Wait()
	})
}

// Calls are in flight in every state of the connection: each returns, Close too.
func TestCloseWithCallsInFlight(t *testing.T) {
	for name, trouble := range map[string]func(srv *fixture.Ensemble){
		"healthy":  func(*fixture.Ensemble) {},
		"slow":     func(srv *fixture.Ensemble) { srv.Delay(zktest.OpAny, 300*time.Millisecond) },
		"silent":   func(srv *fixture.Ensemble) { srv.Partition() },
		"isolated": func(srv *fixture.Ensemble) { srv.Isolate(srv.A) },
		"hanging":  func(srv *fixture.Ensemble) { srv.Hang(srv.A); srv.Disconnect() },
		"refusing": func(srv *fixture.Ensemble) { srv.Stop(srv.A) },
		"dropping": func(srv *fixture.Ensemble) {
			srv.OnRequest(func(r zktest.Request) zktest.Fault {
				return fixture.Cut(r.Op == zktest.OpCreate2 || r.Op == zktest.OpMulti, zktest.ReplyLost)
			})
		},
		"expired": func(srv *fixture.Ensemble) {
			restore := srv.Hang(srv.A)
			srv.Disconnect()
			fixture.Pass(10 * time.Second)
			restore()
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				const timeout = 6 * time.Second
				cfg := srv.Config(timeout)
				cfg.OperationTimeout = 2 * time.Second
				s := fixture.Connect(t, cfg)
				e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
				trouble(srv)
				var calls sync.WaitGroup
				for range 30 {
					calls.Go(func() {
						for err := error(nil); err == nil; {
							_, err = fixture.MutexOn(s, "/m").Acquire(t.Context())
						}
					})
				}
				go func() { _ = e.Leave() }()
				fixture.Pass(100 * time.Millisecond)
				start := time.Now()
				require.NoError(t, s.Close())
				calls.Wait()
				require.LessOrEqual(t, time.Since(start), 3*timeout/6+3*time.Second, "Close is bounded")
			})
		})
	}
}

// Connect that fails leaves nothing running and no socket.
func TestConnectThatFailsLeavesNothing(t *testing.T) {
	for _, trouble := range []func(srv *fixture.Ensemble){
		func(srv *fixture.Ensemble) { srv.Stop(srv.A) },
		func(srv *fixture.Ensemble) { srv.Hang(srv.A) },
		func(srv *fixture.Ensemble) { srv.Partition() },
	} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			trouble(srv)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(2500*time.Millisecond, cancel)
			_, err := session.Connect(ctx, srv.Config(6*time.Second))
			require.ErrorIs(t, err, context.Canceled)
			require.Zero(t, srv.Open())
		})
	}
}

// Somebody closes the zk.Conn under us: everything ends as with Close.
func TestConnClosedByTheUser(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
		synctest.Wait()
		s.Conn().Close()
		_, cause := fixture.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrClosed)
		require.ErrorIs(t, (<-turn).Err, zkutil.ErrClosed)
		_, err := fixture.MutexOn(s, "/m").Acquire(t.Context())
		require.ErrorIs(t, err, zkutil.ErrClosed)
		require.Equal(t, session.Closed, s.State())
	})
}

// A callback of the user that never returns does not hang Close.
func TestCloseWithAHangingCallback(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, err := session.Connect(t.Context(), srv.Config(6*time.Second))
		require.NoError(t, err)
		hang := make(chan struct{})
		defer close(hang)
		s.Callbacks().Post(func() { <-hang })
		start := time.Now()
		require.ErrorContains(t, s.Close(), "a callback is still running")
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestAdoptedWithUnknownTimeoutEndsAtDisconnect(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, _ := fixture.Adopt(t, srv, 0)
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		require.Zero(t, e.TrustedUntil())
		require.Zero(t, s.Timeout())
		fixture.Pass(time.Minute)
		require.NoError(t, e.Context().Err(), "there is no deadline")
		start := time.Now()
		srv.Disconnect()
		at, cause := fixture.Ended(t, e)
		require.Equal(t, start, at)
		require.ErrorIs(t, cause, zkutil.ErrSuspended)
		fixture.Eventually(t, 3*time.Second, func() bool { return len(srv.Children("/m")) == 0 })
		require.NoError(t, fixture.Acquire(t, fixture.MutexOn(s, "/m")).Leave())
	})
}

func TestAdoptedWithKnownTimeoutKeepsTheDeadline(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, _ := fixture.Adopt(t, srv, 6*time.Second)
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		for range 20 {
			fixture.Pass(3 * time.Second)
			srv.Disconnect() // zk.Conn's own host provider comes back after a second
		}
		require.NoError(t, e.Context().Err())
		fixture.Pass(2500 * time.Millisecond) // no heartbeat is under way
		srv.Partition()
		proven := srv.LastWrite()
		at, cause := fixture.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		require.Equal(t, 2500*time.Millisecond, at.Sub(proven), "5T/12: nobody pings for us while we are idle")
		srv.Heal()
		fixture.Pass(10 * time.Second)
	})
}

func TestCloseOfAnAdoptedConnectionLeavesItUsable(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, conn := fixture.Adopt(t, srv, 6*time.Second)
		fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
		synctest.Wait()
		require.Len(t, srv.Children("/m"), 2)
		require.NoError(t, s.Close())
		require.ErrorIs(t, (<-turn).Err, zkutil.ErrClosed)
		require.Empty(t, srv.Children("/m"))
		_, _, err := conn.Get("/m")
		require.NoError(t, err)
	})
}

// The session of an adopted connection expires: the events say so, in whatever shape.
func TestAdoptedSessionExpires(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, conn := fixture.Adopt(t, srv, 6*time.Second)
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		srv.Expire(conn.SessionID())
		_, cause := fixture.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		again := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		require.NoError(t, again.Leave())
	})
}

// zk.Conn sets the watches again by a request of its own, which may be on its way.
func TestCloseRightAfterReconnect(t *testing.T) {
	for range fixture.Shorter(300) {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(6*time.Second))
			fixture.Acquire(t, fixture.MutexOn(s, "/m"))
			srv.Stop(srv.A)
			synctest.Wait()
			states, _ := session.Subscribe[session.State](s)
			srv.Restart(srv.A)
			for state := range states {
				if state == session.Reconnected {
					break
				}
			}
			start := time.Now()
			require.NoError(t, s.Close())
			require.Equal(t, start, time.Now())
		})
	}
}
