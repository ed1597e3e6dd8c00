package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
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

// The bubble itself reports all goroutines that Close does not join, as a deadlock of the bubble.

func TestCloseEndsHoldsAndWaits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
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

// Work returns at the instant at which Close stops waiting for it. The error of Close names the work, or there is none.
func TestCloseNamesTheWorkThatIsRunning(t *testing.T) {
	for range 50 {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(30*time.Second))
			limit := s.Config().OperationTimeout
			require.True(t, s.RunCampaign("selector /jobs", func() {
				<-s.Context().Done()
				bubble.Pause(limit)
			}))
			q := fixture.MutexOn(s, "/m")
			q.Path = q.Dir
			e := bubble.Acquire(t, q.Acquire)
			end, err := e.BeginWork()
			require.NoError(t, err)
			go func() { // ends before the second Close
				<-e.Context().Done()
				bubble.Pause(limit)
				end()(nil)
			}()
			if err := s.Close(); err != nil {
				require.Regexp(t, `work is still running \((mutex /m|selector /jobs|mutex /m, selector /jobs)\): after 10s`, err.Error())
			}
			fixture.Settle()
			require.NoError(t, s.Close())
		})
	}
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
			bubble.Pass(10 * time.Second)
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
				e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
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
				bubble.Pass(100 * time.Millisecond)
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

// The user closes the client's zk.Conn. Everything ends as with Close.
func TestConnClosedByTheUser(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
		synctest.Wait()
		s.Conn().Close()
		_, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrClosed)
		require.ErrorIs(t, (<-turn).Err, zkutil.ErrClosed)
		_, err := fixture.MutexOn(s, "/m").Acquire(t.Context())
		require.ErrorIs(t, err, zkutil.ErrClosed)
		require.Equal(t, connstate.Closed, s.State())
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

// zk.Conn sets the watches again by a request of its own, which may be on its way.
func TestCloseRightAfterReconnect(t *testing.T) {
	for range testkit.Shorter(300, 30) {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(6*time.Second))
			bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			srv.Stop(srv.A)
			synctest.Wait()
			states, _ := session.Subscribe[connstate.State](s)
			srv.Restart(srv.A)
			for state := range states {
				if state == connstate.Reconnected {
					break
				}
			}
			start := time.Now()
			require.NoError(t, s.Close())
			require.Equal(t, start, time.Now())
		})
	}
}

// The first step of Close deletes what is held only if another step has to wait. Otherwise the end of the session deletes it.
func TestCloseDeletesOnlyIfItWaits(t *testing.T) {
	for name, undoes := range map[string]bool{"nothing else": false, "a write that may be undone": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(30*time.Second))
				bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
				if undoes {
					end := s.BeginUndoable()
					defer end()
				}
				s.Abort()
				bubble.Pass(time.Second)
				require.Equal(t, undoes, len(srv.Children("/m")) == 0)
			})
		})
	}
}
