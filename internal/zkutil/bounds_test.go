package zkutil

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A rolling restart has raised the servers' least timeout: the same session is granted 20 s from its next handshake on.
// But a new leader ends it after the 4 s of its creation.
func TestRaisedBoundEndsTheHoldBeforeANewLeaderDoes(t *testing.T) {
	for phase := range 20 {
		synctest.Test(t, func(t *testing.T) {
			srv := newEnsemble(t)
			s, next := connect(t, srv.config(4*time.Second)), connect(t, srv.config(4*time.Second, srv.b))
			e := acquire(t, mutexOn(s, "/m"))
			id := sessionID(s)
			srv.SetSessionTimeouts(20*time.Second, time.Minute)
			srv.Disconnect(id)
			pass(time.Second)
			require.Equal(t, id, sessionID(s))
			require.Equal(t, 20*time.Second, s.Timeout(), "the negotiated one")
			turn := acquireLater(t.Context(), mutexOn(next, "/m"))
			pass(4 * time.Second / 6 * time.Duration(phase) / 20)
			require.NoError(t, acquire(t, mutexOn(s, "/other")).Leave(), "a write proves the session in any case")
			srv.Partition(id)
			srv.ElectLeader()
			at, cause := ended(t, e)
			require.ErrorIs(t, cause, ErrSessionLost)
			got := <-turn
			require.NoError(t, got.err)
			require.Less(t, at, got.at, "the context of the first has ended before the second was granted")
			require.NoError(t, got.entry.Leave())
			srv.Heal()
		})
	}
}

// The heartbeats keep the time of the creation as well, or no proof would come in time.
func TestRaisedBoundKeepsTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		e := acquire(t, mutexOn(s, "/m"))
		srv.SetSessionTimeouts(30*time.Second, time.Minute)
		srv.Disconnect()
		pass(time.Second)
		require.Equal(t, 30*time.Second, s.Timeout())
		pass(time.Minute)
		require.NoError(t, e.Context().Err())
		require.Less(t, time.Until(e.TrustedUntil()), 4*time.Second+time.Millisecond)
		require.NoError(t, e.Leave())
	})
}

// What a new session is granted counts for that one.
func TestBoundOfANewSessionIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		srv.SetSessionTimeouts(30*time.Second, time.Minute)
		srv.Expire(sessionID(s))
		eventually(t, 5*time.Second, func() bool { return s.Timeout() == 30*time.Second && s.State() == Connected })
		e := acquire(t, mutexOn(s, "/m"))
		require.Equal(t, 20*time.Second, time.Until(e.TrustedUntil()))
		require.NoError(t, e.Leave())
	})
}

// A server may grant the same session less than the one before: trust is taken back, and that is said.
func TestLoweredBoundShortensTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		var logged bytes.Buffer
		cfg := srv.config(30 * time.Second)
		cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		s := connect(t, cfg)
		e := acquire(t, mutexOn(s, "/m"))
		require.Equal(t, 20*time.Second, time.Until(e.TrustedUntil()))
		srv.SetSessionTimeouts(time.Second, 6*time.Second)
		srv.Disconnect()
		eventually(t, time.Second, func() bool { return s.Timeout() == 6*time.Second })
		require.LessOrEqual(t, time.Until(e.TrustedUntil()), 4*time.Second)
		synctest.Wait()
		require.Contains(t, logged.String(), "level=WARN msg=\"the server grants a shorter session timeout")
		pass(time.Minute)
		require.NoError(t, e.Context().Err(), "and the lease is kept by it")
		require.NoError(t, e.Leave())
	})
}

// The answer of a server with a lower bound may be lost: by then the server has moved the session's end. Where a server has
// granted less before, the client reckons with that.
func TestLostAnswerOfALowerBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		loseAnswerOfLowerBound(t, srv, 6*time.Second)
	})
}

// Whatever has ended a lease, it is not trusted any more.
func TestEndedHoldIsNotTrusted(t *testing.T) {
	for want, end := range map[error]func(srv *ensemble, s *Session, e *Entry){
		ErrReleased:    func(_ *ensemble, _ *Session, e *Entry) { _ = e.Leave() },
		ErrClosed:      func(_ *ensemble, s *Session, _ *Entry) { _ = s.Close() },
		ErrNodeDeleted: func(srv *ensemble, _ *Session, e *Entry) { srv.Delete(e.Path()) },
		ErrSessionLost: func(srv *ensemble, s *Session, _ *Entry) { srv.Expire(sessionID(s)) },
		ErrSuspended:   func(srv *ensemble, _ *Session, _ *Entry) { srv.Stop() },
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := newEnsemble(t)
			cfg := srv.config(6 * time.Second)
			cfg.SuspendEnds = want == ErrSuspended //nolint:errorlint // a key of the table
			s := connect(t, cfg)
			e := acquire(t, mutexOn(s, "/m"))
			require.True(t, time.Now().Before(e.TrustedUntil()))
			end(srv, s, e)
			at, cause := ended(t, e)
			require.ErrorIs(t, cause, want)
			require.False(t, e.TrustedUntil().After(at), "%v: trusted for %v", want, e.TrustedUntil().Sub(at))
			_ = e.Leave()
		})
	}
}

// While the machine is suspended Go's clock stands still, and the servers' goes on.
func TestSuspendedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg, suspended := srv.config(6*time.Second), make(chan time.Duration, 1)
		suspended <- time.Hour // some time ago
		cfg.Suspended = func() time.Duration {
			d := <-suspended
			suspended <- d
			return d
		}
		s := connect(t, cfg)
		e := acquire(t, mutexOn(s, "/m"))
		require.Equal(t, 4*time.Second, time.Until(e.TrustedUntil()))
		pass(100 * time.Millisecond)
		suspended <- <-suspended + 3*time.Second
		require.Equal(t, 900*time.Millisecond, time.Until(e.TrustedUntil()), "three seconds less")
		require.True(t, e.Stands())
		suspended <- <-suspended + time.Second
		require.False(t, e.Stands())
		require.False(t, e.TrustedUntil().After(time.Now()))
		require.ErrorIs(t, e.Leave(), ErrSessionLost)
	})
}

// Without anybody who asks, the context ends with the next heartbeat at the latest.
func TestContextAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg, suspended := srv.config(6*time.Second), make(chan time.Duration, 1)
		suspended <- 0
		cfg.Suspended = func() time.Duration {
			d := <-suspended
			suspended <- d
			return d
		}
		s := connect(t, cfg)
		e := acquire(t, mutexOn(s, "/m"))
		pass(100 * time.Millisecond)
		resumed := time.Now()
		srv.Partition(sessionID(s))
		<-suspended
		suspended <- time.Minute
		at, cause := ended(t, e)
		require.ErrorIs(t, cause, ErrSessionLost)
		require.LessOrEqual(t, at.Sub(resumed), time.Second)
		srv.Heal()
	})
}

// The clock's readings are not exact: what is below their error is no suspension.
func TestClockIgnoresJitter(t *testing.T) {
	total := time.Minute
	c := &clock{suspended: func() time.Duration { return total }}
	require.Equal(t, time.Minute, c.offset())
	for _, d := range []time.Duration{suspendError, -time.Second, 0} {
		total = time.Minute + d
		require.Equal(t, time.Minute, c.offset(), "%v", d)
	}
	total = time.Minute + 2*suspendError
	require.Equal(t, total, c.offset())
	require.True(t, c.local(time.Time{}).IsZero())
}

func TestSuspendedTimeOfThisMachine(t *testing.T) {
	a, b := suspendedTime(), suspendedTime()
	require.GreaterOrEqual(t, a, -suspendError)
	require.InDelta(t, a, b, float64(suspendError))
}

// A client whose connection was closed comes back, however slow handshakes have become.
func TestSlowHandshakesOnlyDelay(t *testing.T) {
	const timeout = 4 * time.Second
	for _, handshake := range []time.Duration{700 * time.Millisecond, timeout / 2, timeout * 3 / 4} {
		for _, servers := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t, zktest.WithServers(servers+1))
				s := connect(t, srv.config(timeout, srv.Addrs()[:servers]...))
				srv.SlowHandshakes(handshake)
				srv.Disconnect()
				eventually(t, 30*time.Second, func() bool { return s.State() != Connected })
				eventually(t, 2*timeout+2*time.Duration(servers+2)*handshake, func() bool { return s.State() == Connected })
				srv.SlowHandshakes(0)
				srv.Disconnect()
				pass(time.Second)
				require.Equal(t, timeout/6, s.handshakePatience(), "after a quick one it is as before")
			})
		}
	}
}

// The list of many contenders takes longer to arrive than a heartbeat may go without an answer.
func TestLongAnswerOnASlowLine(t *testing.T) {
	const timeout, contenders = 4 * time.Second, 25_000
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		busy := "/busy"
		for i := range contenders { // of higher numbers than ours
			srv.Put(fmt.Sprintf("%s/_c_00000000-0000-4000-8000-%012d", busy, i)+"-lock-"+fmt.Sprintf("%010d", 1_000_000+i), nil)
		}
		s := connect(t, srv.config(timeout, srv.a, srv.b))
		holds := acquire(t, mutexOn(s, "/other"))
		srv.SetBandwidth(1 << 20)
		start := time.Now()
		e := acquire(t, mutexOn(s, busy))
		require.Less(t, time.Since(start), 2*timeout)
		require.Greater(t, time.Since(start), timeout/6, "it was no slow line")
		require.NoError(t, holds.Context().Err(), "nor does it cost another lease")
		srv.SetBandwidth(0)
		require.NoError(t, e.Leave())
		require.NoError(t, holds.Leave())
	})
}
