package session_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync/atomic"
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

// A rolling restart raised the servers' least timeout. The same session is granted 20 s from its next handshake on. But
// a new leader ends it after the 4 s of its creation.
func TestRaisedBoundEndsTheHoldBeforeANewLeaderDoes(t *testing.T) {
	for phase := range 20 {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s, next := fixture.Connect(t, srv.Config(4*time.Second)), fixture.Connect(t, srv.Config(4*time.Second, srv.B))
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			id := fixture.SessionID(s)
			srv.SetSessionTimeouts(20*time.Second, time.Minute)
			srv.Disconnect(id)
			bubble.Pass(time.Second)
			require.Equal(t, id, fixture.SessionID(s))
			require.Equal(t, 20*time.Second, s.Timeout(), "the negotiated one")
			turn := bubble.Start(t.Context(), fixture.MutexOn(next, "/m").Acquire)
			bubble.Pass(4 * time.Second / 6 * time.Duration(phase) / 20)
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/other").Acquire).Leave(), "a write proves the session in any case")
			srv.Partition(id)
			srv.ElectLeader()
			at, cause := bubble.Ended(t, e)
			require.ErrorIs(t, cause, zkutil.ErrSessionLost)
			got := <-turn
			require.NoError(t, got.Err)
			require.Less(t, at, got.At, "the context of the first has ended before the second was granted")
			require.NoError(t, got.Lease.Leave())
			srv.Heal()
		})
	}
}

// The heartbeats keep the time of the creation as well, or no proof would be in time.
func TestRaisedBoundKeepsTheHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		srv.SetSessionTimeouts(30*time.Second, time.Minute)
		srv.Disconnect()
		bubble.Pass(time.Second)
		require.Equal(t, 30*time.Second, s.Timeout())
		bubble.Pass(time.Minute)
		require.NoError(t, e.Context().Err())
		require.Less(t, time.Until(e.TrustedUntil()), 4*time.Second+time.Millisecond)
		require.NoError(t, e.Leave())
	})
}

// What a new session is granted counts for that one.
func TestBoundOfANewSessionIsItsOwn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		srv.SetSessionTimeouts(30*time.Second, time.Minute)
		srv.Expire(fixture.SessionID(s))
		bubble.Eventually(t, 5*time.Second, func() bool { return s.Timeout() == 30*time.Second && s.State() == connstate.Connected })
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.Equal(t, 20*time.Second, time.Until(e.TrustedUntil()))
		require.NoError(t, e.Leave())
	})
}

// A server may grant the same session less than the one before: trust is taken back, and that is said.
func TestLoweredBoundShortensTrust(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		var logged bytes.Buffer
		cfg := srv.Config(30 * time.Second)
		cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.Equal(t, 20*time.Second, time.Until(e.TrustedUntil()))
		srv.SetSessionTimeouts(time.Second, 6*time.Second)
		srv.Disconnect()
		bubble.Eventually(t, time.Second, func() bool { return s.Timeout() == 6*time.Second })
		require.LessOrEqual(t, time.Until(e.TrustedUntil()), 4*time.Second)
		synctest.Wait()
		require.Contains(t, logged.String(), "level=WARN msg=\"server grants a shorter session timeout")
		bubble.Pass(time.Minute)
		require.NoError(t, e.Context().Err(), "and the lease is kept by it")
		require.NoError(t, e.Leave())
	})
}

// The answer of a server with a lower bound may be lost after the server moved the session's end. If a server granted less
// before, the client reckons with that.
func TestLostAnswerOfALowerBound(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		loseAnswerOfLowerBound(t, srv, 6*time.Second)
	})
}

// After any end, a lease is not trusted any more.
func TestEndedHoldIsNotTrusted(t *testing.T) {
	for want, end := range map[error]func(srv *fixture.Ensemble, s *session.Session, e *session.Entry){
		zkutil.ErrReleased:    func(_ *fixture.Ensemble, _ *session.Session, e *session.Entry) { _ = e.Leave() },
		zkutil.ErrClosed:      func(_ *fixture.Ensemble, s *session.Session, _ *session.Entry) { _ = s.Close() },
		zkutil.ErrNodeDeleted: func(srv *fixture.Ensemble, _ *session.Session, e *session.Entry) { srv.Delete(e.Path()) },
		zkutil.ErrSessionLost: func(srv *fixture.Ensemble, s *session.Session, _ *session.Entry) { srv.Expire(fixture.SessionID(s)) },
		zkutil.ErrSuspended:   func(srv *fixture.Ensemble, _ *session.Session, _ *session.Entry) { srv.Stop() },
	} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			cfg := srv.Config(6 * time.Second)
			cfg.SuspendEnds = want == zkutil.ErrSuspended //nolint:errorlint // a key of the table
			s := fixture.Connect(t, cfg)
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			require.True(t, time.Now().Before(e.TrustedUntil()))
			end(srv, s, e)
			at, cause := bubble.Ended(t, e)
			require.ErrorIs(t, cause, want)
			require.False(t, e.TrustedUntil().After(at), "%v: trusted for %v", want, e.TrustedUntil().Sub(at))
			_ = e.Leave()
		})
	}
}

// While the machine is suspended Go's clock stands still, and the servers' keep running.
func TestSuspendedMachine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg, suspended := srv.Config(6*time.Second), make(chan time.Duration, 1)
		suspended <- time.Hour // some time ago
		cfg.Suspended = func() time.Duration {
			d := <-suspended
			suspended <- d
			return d
		}
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.Equal(t, 4*time.Second, time.Until(e.TrustedUntil()))
		bubble.Pass(100 * time.Millisecond)
		suspended <- <-suspended + 3*time.Second
		require.Equal(t, 900*time.Millisecond, time.Until(e.TrustedUntil()), "three seconds less")
		require.True(t, e.Stands())
		suspended <- <-suspended + time.Second
		require.False(t, e.Stands())
		require.False(t, e.TrustedUntil().After(time.Now()))
		require.ErrorIs(t, e.Leave(), zkutil.ErrSessionLost)
	})
}

// LeaveWriting sends nothing for a hold whose trust ran out while the machine was suspended.
func TestNoLeaveWritingAfterASuspension(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		var suspended atomic.Int64
		cfg.Suspended = func() time.Duration { return time.Duration(suspended.Load()) }
		s := fixture.Connect(t, cfg)
		srv.Put("/record", nil)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		end, err := e.BeginWork()
		require.NoError(t, err)
		suspended.Store(int64(time.Minute))
		isSent, err := e.LeaveWriting(t.Context(), "/record", nil, 0)
		require.NoError(t, err)
		require.False(t, isSent)
		end()
		require.ErrorIs(t, e.Leave(), zkutil.ErrSessionLost)
	})
}

// Even if no caller asks, the context ends with the next heartbeat at the latest.
func TestContextAfterASuspension(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg, suspended := srv.Config(6*time.Second), make(chan time.Duration, 1)
		suspended <- 0
		cfg.Suspended = func() time.Duration {
			d := <-suspended
			suspended <- d
			return d
		}
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(100 * time.Millisecond)
		resumed := time.Now()
		srv.Partition(fixture.SessionID(s))
		<-suspended
		suspended <- time.Minute
		at, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		require.LessOrEqual(t, at.Sub(resumed), time.Second)
		srv.Heal()
	})
}

// A client whose connection was closed reconnects, however slow handshakes are.
func TestSlowHandshakesOnlyDelay(t *testing.T) {
	const timeout = 4 * time.Second
	for _, handshake := range []time.Duration{700 * time.Millisecond, timeout / 2, timeout * 3 / 4} {
		for _, servers := range []int{1, 3} {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t, zktest.WithServers(servers+1))
				s := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[:servers]...))
				srv.SlowHandshakes(handshake)
				srv.Disconnect()
				bubble.Eventually(t, 30*time.Second, func() bool { return s.State() != connstate.Connected })
				bubble.Eventually(t, 2*timeout+2*time.Duration(servers+2)*handshake, func() bool { return s.State() == connstate.Connected })
				srv.SlowHandshakes(0)
				srv.Disconnect()
				bubble.Pass(time.Second)
				require.Equal(t, timeout/6, s.HandshakePatience(), "after a quick one it is as before")
			})
		}
	}
}

// The list of many contenders takes longer to arrive than a heartbeat may go without an answer.
func TestLongAnswerOnASlowLine(t *testing.T) {
	const timeout, contenders = 4 * time.Second, 25_000
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		busy := "/busy"
		for i := range contenders { // of higher numbers than ours
			srv.Put(fmt.Sprintf("%s/_c_00000000-0000-4000-8000-%012d", busy, i)+"-lock-"+fmt.Sprintf("%010d", 1_000_000+i), nil)
		}
		s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
		holds := bubble.Acquire(t, fixture.MutexOn(s, "/other").Acquire)
		srv.SetBandwidth(1 << 20)
		start := time.Now()
		e := bubble.Acquire(t, fixture.MutexOn(s, busy).Acquire)
		require.Less(t, time.Since(start), 2*timeout)
		require.Greater(t, time.Since(start), timeout/6, "it was no slow line")
		require.EqualValues(t, 1, s.Snapshot().Epoch, "the client stays with a server whose answer is on its way")
		require.NoError(t, holds.Context().Err(), "nor does it cost another lease")
		srv.SetBandwidth(0)
		require.NoError(t, e.Leave())
		require.NoError(t, holds.Leave())
	})
}
