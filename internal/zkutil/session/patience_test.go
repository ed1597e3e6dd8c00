package session_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A leader that falls silent takes the others out of service until they notice, within T/3, and elect another one, within
// T/12. A hold outlives that, in any phase of the heartbeat and with any order of the servers.
func TestHoldOutlivesASilentLeader(t *testing.T) {
	phases := testkit.Shorter(100, 10)
	for _, timeout := range []time.Duration{6 * time.Second, 12 * time.Second, 30 * time.Second} {
		for phase := range phases {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t, zktest.WithServers(3))
				s := fixture.Connect(t, srv.Config(timeout, srv.Addrs()...))
				e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
				bubble.Pass(timeout/6*time.Duration(phase)/time.Duration(phases) + time.Millisecond)
				leader := s.Conn().Server()
				others := slices.DeleteFunc(srv.Addrs(), func(server string) bool { return server == leader })
				srv.Freeze(leader)
				srv.Stop(others...)
				bubble.Pass(timeout/3 + timeout/12 - 50*time.Millisecond)
				srv.Restart(others...)
				bubble.Pass(timeout)
				require.NoError(t, e.Context().Err(), "session timeout %v, phase %d", timeout, phase)
				require.NoError(t, e.Leave())
			})
		}
	}
}

// With one server alone there is nothing to hurry for, and a slow handshake is better than none.
func TestOnlyServerIsGivenTimeAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		restore := srv.Hang(srv.A)
		srv.Disconnect()
		bubble.Pass(1500 * time.Millisecond)
		restore()
		srv.Delay(zktest.OpConnect, 900*time.Millisecond)
		bubble.Eventually(t, 2*time.Second, func() bool { return s.State() == connstate.Connected })
	})
}

// A server that was silent gets all the patience again after a while, so that a slow one is not shut out.
func TestSilenceIsForgotten(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second, srv.A, srv.B))
		silent := s.Conn().Server()
		srv.Stop(map[string]string{srv.A: srv.B, srv.B: srv.A}[silent])
		restore := srv.Hang(silent)
		srv.Disconnect()
		bubble.Pass(3 * time.Second)
		require.NotEqual(t, connstate.Connected, s.State())
		srv.Delay(zktest.OpConnect, 900*time.Millisecond)
		restore()
		bubble.Eventually(t, 6*time.Second, func() bool { return s.State() == connstate.Connected })
	})
}

// A server that served before it fell silent, and serves again, is given the time that it took then and half as much
// more: it may be the only one that does.
func TestSlowServerIsTakenBackInTime(t *testing.T) {
	const timeout = 6 * time.Second
	for _, before := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond} {
		after := before * 3 / 2
		t.Run(after.String(), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				srv.Stop(srv.B)
				remove := srv.Delay(zktest.OpConnect, before)
				s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
				e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
				bubble.Pass(10 * time.Millisecond)
				srv.Freeze(srv.A)
				bubble.Eventually(t, timeout/2, func() bool { return s.State() != connstate.Connected })
				remove()
				srv.Delay(zktest.OpConnect, after)
				healed := time.Now()
				srv.Heal(srv.A)
				bubble.Eventually(t, timeout/3, func() bool { return s.State() == connstate.Connected })
				require.Less(t, time.Since(healed), timeout/6+after, "one attempt that was under way, and one that counts")
				bubble.Pass(timeout)
				require.NoError(t, e.Context().Err(), "handshakes take %v", after)
			})
		})
	}
}
