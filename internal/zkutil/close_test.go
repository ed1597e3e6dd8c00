package zkutil

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// The bubble itself reports whatever Close does not join: a goroutine left is a
// deadlock of the bubble.

func TestCloseEndsHoldsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(30*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		turn := acquireLater(t.Context(), mutexOn(s, "/m"))
		synctest.Wait()
		start := time.Now()
		require.NoError(t, s.Close())
		require.ErrorIs(t, context.Cause(e.Context()), ErrClosed)
		require.ErrorIs(t, (<-turn).err, ErrClosed)
		require.ErrorIs(t, e.Leave(), ErrClosed)
		require.Equal(t, start, time.Now())
		require.Empty(t, f.children("/m"))
		require.Empty(t, f.sessions, "the session was closed, not left to expire")
		require.NoError(t, s.Close(), "idempotent")
	})
}

func TestCloseConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(30*time.Second))
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
	for name, trouble := range map[string]func(f *fake){
		"healthy":  func(*fake) {},
		"slow":     func(f *fake) { f.onRequest(func(seen) fault { return fault{delay: 300 * time.Millisecond} }) },
		"silent":   func(f *fake) { f.set(silent, serverA) },
		"isolated": func(f *fake) { f.set(isolated, serverA) },
		"hanging":  func(f *fake) { f.set(hanging, serverA); f.drop() },
		"refusing": func(f *fake) { f.set(refusing, serverA); f.drop() },
		"dropping": func(f *fake) {
			f.onRequest(func(r seen) fault { return fault{cut: r.op == opCreate || r.op == opMulti} })
		},
		"expired": func(f *fake) { f.set(hanging, serverA); f.drop(); pass(10 * time.Second); f.set(healthy, serverA) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, serverA)
				const timeout = 6 * time.Second
				cfg := f.config(timeout)
				cfg.OperationTimeout = 2 * time.Second
				s := connect(t, cfg)
				e := acquire(t, mutexOn(s, "/m"))
				trouble(f)
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
				f.onRequest(nil)
			})
		})
	}
}

// Connect that fails leaves nothing running and no socket.
func TestConnectThatFailsLeavesNothing(t *testing.T) {
	for _, state := range []condition{refusing, hanging, silent} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, serverA)
			f.set(state, serverA)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(2500*time.Millisecond, cancel)
			_, err := Connect(ctx, f.config(6*time.Second))
			require.ErrorIs(t, err, context.Canceled)
			f.mu.Lock()
			require.Zero(t, f.open)
			f.mu.Unlock()
			f.set(healthy, serverA)
		})
	}
}

// Somebody closes the zk.Conn under us: everything ends as with Close.
func TestConnClosedByTheUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s := connect(t, f.config(6*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		turn := acquireLater(t.Context(), mutexOn(s, "/m"))
		synctest.Wait()
		s.Conn().Close()
		_, cause := ended(t, e)
		require.Error(t, cause)
		require.Error(t, (<-turn).err)
		_, err := mutexOn(s, "/m").Acquire(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		require.Equal(t, Closed, s.State())
	})
}

// A callback of the user that never returns does not hang Close.
func TestCloseWithAHangingCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s, err := Connect(t.Context(), f.config(6*time.Second))
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
func adopt(t *testing.T, f *fake, timeout time.Duration) (s *Session, conn *zk.Conn) {
	t.Helper()
	conn, events, err := zk.Connect([]string{serverA}, 6*time.Second, zk.WithDialer(f.dial), zk.WithLogInfo(false),
		zk.WithLogger(quiet{}))
	require.NoError(t, err)
	synctest.Wait()
	// Nothing keeps an early answer from a race with zk.Conn's setWatches here.
	f.onRequest(func(seen) fault { return fault{delay: 10 * time.Millisecond} })
	cfg := f.config(timeout)
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
		f := newFake(t, serverA)
		s, _ := adopt(t, f, 0)
		e := acquire(t, mutexOn(s, "/m"))
		require.Zero(t, e.TrustedUntil())
		require.Zero(t, s.Timeout())
		pass(time.Minute)
		require.NoError(t, e.Context().Err(), "there is no deadline")
		start := time.Now()
		f.drop()
		at, cause := ended(t, e)
		require.Equal(t, start, at)
		require.ErrorIs(t, cause, ErrSuspended)
		eventually(t, 3*time.Second, func() bool { return len(f.children("/m")) == 0 })
		require.NoError(t, acquire(t, mutexOn(s, "/m")).Leave())
	})
}

func TestAdoptedWithKnownTimeoutKeepsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s, _ := adopt(t, f, 6*time.Second)
		e := acquire(t, mutexOn(s, "/m"))
		for range 20 {
			pass(3 * time.Second)
			f.drop() // zk.Conn's own host provider comes back after a second
		}
		require.NoError(t, e.Context().Err())
		pass(3 * time.Second)
		f.set(silent, serverA)
		proven := f.lastWrite()
		at, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrSessionLost)
		require.Equal(t, 2500*time.Millisecond, at.Sub(proven), "5T/12: nobody pings for us while we are idle")
		f.set(healthy, serverA)
		pass(10 * time.Second)
	})
}

func TestCloseOfAnAdoptedConnectionLeavesItUsable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s, conn := adopt(t, f, 6*time.Second)
		acquire(t, mutexOn(s, "/m"))
		turn := acquireLater(t.Context(), mutexOn(s, "/m"))
		synctest.Wait()
		require.Len(t, f.children("/m"), 2)
		require.NoError(t, s.Close())
		require.ErrorIs(t, (<-turn).err, ErrClosed)
		require.Empty(t, f.children("/m"))
		_, _, err := conn.Get("/m")
		require.NoError(t, err)
	})
}

// The session of an adopted connection expires: the events say so, in whatever shape.
func TestAdoptedSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, serverA)
		s, conn := adopt(t, f, 6*time.Second)
		e := acquire(t, mutexOn(s, "/m"))
		f.expire(conn.SessionID())
		_, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrSessionLost)
		again := acquire(t, mutexOn(s, "/m"))
		require.NoError(t, again.Leave())
	})
}

// zk.Conn sets the watches again by a request of its own, which may be on its way.
func TestCloseRightAfterReconnect(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, serverA)
			s := connect(t, f.config(6*time.Second))
			acquire(t, mutexOn(s, "/m"))
			f.set(refusing, serverA)
			f.drop()
			synctest.Wait()
			states, _ := Subscribe[State](s)
			f.set(healthy, serverA)
			for state := range states {
				if state == Reconnected {
					break
				}
			}
			require.NoError(t, s.Close())
		})
	}
}
