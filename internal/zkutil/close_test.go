package zkutil

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The bubble itself reports whatever Close does not join: a goroutine left is a
// deadlock of the bubble.

func TestCloseEndsHoldsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		turn := acquireLater(t.Context(), mutexOn(s, "/m"))
		synctest.Wait()
		start := time.Now()
		require.NoError(t, s.Close())
		require.ErrorIs(t, context.Cause(e.Context()), ErrClosed)
		require.ErrorIs(t, (<-turn).err, ErrClosed)
		require.ErrorIs(t, e.Leave(), ErrClosed)
		require.Equal(t, start, time.Now())
		require.Empty(t, srv.Children("/m"))
		require.Empty(t, srv.Sessions(), "the session was closed, not left to expire")
		require.NoError(t, s.Close(), "idempotent")
	})
}

func TestCloseConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(30*time.Second))
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
	for name, trouble := range map[string]func(srv *ensemble){
		"healthy":  func(*ensemble) {},
		"slow":     func(srv *ensemble) { srv.Delay(zktest.OpAny, 300*time.Millisecond) },
		"silent":   func(srv *ensemble) { srv.Partition() },
		"isolated": func(srv *ensemble) { srv.Isolate(srv.a) },
		"hanging":  func(srv *ensemble) { srv.hang(srv.a); srv.Disconnect() },
		"refusing": func(srv *ensemble) { srv.Stop(srv.a) },
		"dropping": func(srv *ensemble) {
			srv.onRequest(func(r zktest.Request) zktest.Fault {
				return cut(r.Op == zktest.OpCreate || r.Op == zktest.OpMulti, zktest.ReplyLost)
			})
		},
		"expired": func(srv *ensemble) { restore := srv.hang(srv.a); srv.Disconnect(); pass(10 * time.Second); restore() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t)
				const timeout = 6 * time.Second
				cfg := srv.config(timeout)
				cfg.OperationTimeout = 2 * time.Second
				s := connect(t, cfg)
				e := acquire(t, mutexOn(s, "/m"))
				trouble(srv)
				var calls sync.WaitGroup
				for range 30 {
					calls.Go(func() {
						for err := error(nil); err == nil; {
							_, err = mutexOn(s, "/m").Acquire(t.Context())
						}
					})
				}
				go func() { _ = e.Leave() }()
				pass(100 * time.Millisecond)
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
	for _, trouble := range []func(srv *ensemble){
		func(srv *ensemble) { srv.Stop(srv.a) },
		func(srv *ensemble) { srv.hang(srv.a) },
		func(srv *ensemble) { srv.Partition() },
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := newEnsemble(t)
			trouble(srv)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(2500*time.Millisecond, cancel)
			_, err := Connect(ctx, srv.config(6*time.Second))
			require.ErrorIs(t, err, context.Canceled)
			require.Zero(t, srv.open())
		})
	}
}

// Somebody closes the zk.Conn under us: everything ends as with Close.
func TestConnClosedByTheUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		turn := acquireLater(t.Context(), mutexOn(s, "/m"))
		synctest.Wait()
		s.Conn().Close()
		_, cause := ended(t, e)
		require.Error(t, cause)
		got := <-turn
		if got.err == nil { // the server told of the holder's znode first: it must end
			var at time.Time
			at, got.err = ended(t, got.entry)
			require.Equal(t, got.at, at)
			require.Error(t, got.entry.Leave())
		}
		require.Error(t, got.err)
		_, err := mutexOn(s, "/m").Acquire(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		require.Equal(t, Closed, s.State())
	})
}

// A callback of the user that never returns does not hang Close.
func TestCloseWithAHangingCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s, err := Connect(t.Context(), srv.config(6*time.Second))
		require.NoError(t, err)
		hang := make(chan struct{})
		defer close(hang)
		s.Callbacks().Post(func() { <-hang })
		start := time.Now()
		require.ErrorContains(t, s.Close(), "a callback is still running")
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// adopt tracks a connection that the test has opened as a user would.
func adopt(t *testing.T, srv *ensemble, timeout time.Duration) (s *Session, conn *zk.Conn) {
	t.Helper()
	conn, events, err := zk.Connect([]string{srv.a}, 6*time.Second, zk.WithDialer(srv.dial), zk.WithLogInfo(false),
		zk.WithLogger(quiet{}))
	require.NoError(t, err)
	synctest.Wait()
	// Nothing keeps an early answer from a race with zk.Conn's setWatches here.
	srv.Delay(zktest.OpAny, 10*time.Millisecond)
	cfg := srv.config(timeout)
	cfg.Dialer = nil
	s = Adopt(conn, events, cfg)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		conn.Close()
	})
	return s, conn
}

func TestAdoptedWithUnknownTimeoutEndsAtDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s, _ := adopt(t, srv, 0)
		e := acquire(t, mutexOn(s, "/m"))
		require.Zero(t, e.TrustedUntil())
		require.Zero(t, s.Timeout())
		pass(time.Minute)
		require.NoError(t, e.Context().Err(), "there is no deadline")
		start := time.Now()
		srv.Disconnect()
		at, cause := ended(t, e)
		require.Equal(t, start, at)
		require.ErrorIs(t, cause, ErrSuspended)
		eventually(t, 3*time.Second, func() bool { return len(srv.Children("/m")) == 0 })
		require.NoError(t, acquire(t, mutexOn(s, "/m")).Leave())
	})
}

func TestAdoptedWithKnownTimeoutKeepsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s, _ := adopt(t, srv, 6*time.Second)
		e := acquire(t, mutexOn(s, "/m"))
		for range 20 {
			pass(3 * time.Second)
			srv.Disconnect() // zk.Conn's own host provider comes back after a second
		}
		require.NoError(t, e.Context().Err())
		pass(3 * time.Second)
		srv.Partition()
		proven := srv.lastWrite()
		at, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrSessionLost)
		require.Equal(t, 2500*time.Millisecond, at.Sub(proven), "5T/12: nobody pings for us while we are idle")
		srv.Heal()
		pass(10 * time.Second)
	})
}

func TestCloseOfAnAdoptedConnectionLeavesItUsable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s, conn := adopt(t, srv, 6*time.Second)
		acquire(t, mutexOn(s, "/m"))
		turn := acquireLater(t.Context(), mutexOn(s, "/m"))
		synctest.Wait()
		require.Len(t, srv.Children("/m"), 2)
		require.NoError(t, s.Close())
		require.ErrorIs(t, (<-turn).err, ErrClosed)
		require.Empty(t, srv.Children("/m"))
		_, _, err := conn.Get("/m")
		require.NoError(t, err)
	})
}

// The session of an adopted connection expires: the events say so, in whatever shape.
func TestAdoptedSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s, conn := adopt(t, srv, 6*time.Second)
		e := acquire(t, mutexOn(s, "/m"))
		srv.Expire(conn.SessionID())
		_, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrSessionLost)
		again := acquire(t, mutexOn(s, "/m"))
		require.NoError(t, again.Leave())
	})
}

// zk.Conn sets the watches again by a request of its own, which may be on its way.
func TestCloseRightAfterReconnect(t *testing.T) {
	for range shorter(300) {
		synctest.Test(t, func(t *testing.T) {
			srv := newEnsemble(t)
			s := connect(t, srv.config(6*time.Second))
			acquire(t, mutexOn(s, "/m"))
			srv.Stop(srv.a)
			synctest.Wait()
			states, _ := Subscribe[State](s)
			srv.Restart(srv.a)
			for state := range states {
				if state == Reconnected {
					break
				}
			}
			start := time.Now()
			require.NoError(t, s.Close())
			require.Equal(t, start, time.Now())
		})
	}
}
