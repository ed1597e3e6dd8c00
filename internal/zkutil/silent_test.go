package zkutil

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A leader that falls silent takes the others out of service until they have noticed, within T/3, and elected another one,
// within T/12. A hold outlives that, whatever the phase of the heartbeat and the order of the servers.
func TestHoldOutlivesASilentLeader(t *testing.T) {
	for _, timeout := range []time.Duration{6 * time.Second, 12 * time.Second, 30 * time.Second} {
		for phase := range 100 {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t, zktest.WithServers(3))
				s := connect(t, srv.config(timeout, srv.Addrs()...))
				e := acquire(t, mutexOn(s, "/m"))
				pass(timeout/6*time.Duration(phase)/100 + time.Millisecond)
				leader := s.Conn().Server()
				others := slices.DeleteFunc(srv.Addrs(), func(server string) bool { return server == leader })
				srv.Freeze(leader)
				srv.Stop(others...)
				pass(timeout/3 + timeout/12 - 50*time.Millisecond)
				srv.Restart(others...)
				pass(timeout)
				require.NoError(t, e.Context().Err(), "session timeout %v, phase %d", timeout, phase)
				require.NoError(t, e.Leave())
			})
		}
	}
}

// With one server alone there is nothing to hurry for, and a slow handshake is better than none.
func TestOnlyServerIsGivenTimeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second))
		restore := srv.hang(srv.a)
		srv.Disconnect()
		pass(1500 * time.Millisecond)
		restore()
		srv.Delay(zktest.OpConnect, 900*time.Millisecond)
		eventually(t, 2*time.Second, func() bool { return s.State() == Connected })
	})
}

// A server that was silent gets all the patience again after a while, so that a slow one is not shut out.
func TestSilenceIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		s := connect(t, srv.config(6*time.Second, srv.a, srv.b))
		silent := s.Conn().Server()
		srv.Stop(map[string]string{srv.a: srv.b, srv.b: srv.a}[silent])
		restore := srv.hang(silent)
		srv.Disconnect()
		pass(3 * time.Second)
		require.NotEqual(t, Connected, s.State())
		srv.Delay(zktest.OpConnect, 900*time.Millisecond)
		restore()
		eventually(t, 6*time.Second, func() bool { return s.State() == Connected })
	})
}

// A server that served before it fell silent, and serves again, is given the time that it took then and half as much
// more: it may be the only one that does.
func TestSlowServerIsTakenBackInTime(t *testing.T) {
	const timeout = 6 * time.Second
	for _, before := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond} {
		after := before * 3 / 2
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t)
				srv.Stop(srv.b)
				remove := srv.Delay(zktest.OpConnect, before)
				s := connect(t, srv.config(timeout, srv.a, srv.b))
				e := acquire(t, mutexOn(s, "/m"))
				pass(10 * time.Millisecond)
				srv.Freeze(srv.a)
				eventually(t, timeout/2, func() bool { return s.State() != Connected })
				remove()
				srv.Delay(zktest.OpConnect, after)
				healed := time.Now()
				srv.Heal(srv.a)
				eventually(t, timeout/3, func() bool { return s.State() == Connected })
				require.Less(t, time.Since(healed), timeout/6+after, "one attempt that was under way, and one that counts")
				pass(timeout)
				require.NoError(t, e.Context().Err(), "handshakes take %v", after)
			})
		})
	}
}
