package session_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A waiter leaves a server that is silent: after T for the next reads and T/3 for their answer if it answers pings, and
// within T if it answers nothing. Its place is kept.
func TestWaiterLeavesASilentServer(t *testing.T) {
	const timeout = 6 * time.Second
	for name, test := range map[string]struct {
		silence func(srv *fixture.Ensemble, server string)
		limit   time.Duration
	}{
		"but for pings": {
			func(srv *fixture.Ensemble, server string) {
				srv.OnRequest(func(r zktest.Request) zktest.Fault { return fixture.Cut(r.Server == server, zktest.NoAnswer) })
			}, timeout + timeout/3,
		},
		"altogether": {func(srv *fixture.Ensemble, server string) { srv.Freeze(server) }, timeout},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t, zktest.WithServers(3))
				holder := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[2]))
				s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
				e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
				turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
				bubble.Pass(timeout * 5 / 4)
				place, from := srv.Children("/m"), s.Conn().Server()
				start := time.Now()
				test.silence(srv, from)
				bubble.Eventually(t, time.Hour, func() bool { return s.State() == connstate.Connected && s.Conn().Server() != from })
				require.LessOrEqual(t, time.Since(start), test.limit+100*time.Millisecond)
				require.Equal(t, place, srv.Children("/m"))
				require.NoError(t, e.Leave())
				got := <-turn
				require.NoError(t, got.Err)
				require.NoError(t, got.Lease.Leave())
				srv.Heal()
			})
		})
	}
}

// The answer to the list of a newcomer is lost, and the connection stays open. The client leaves that server, and looks
// again.
func TestLostAnswerToAList(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(timeout))
		srv.Put("/m", nil)
		srv.Once(zktest.OpGetChildren2, zktest.Fault{Lost: zktest.AnswerLost})
		start := time.Now()
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.LessOrEqual(t, time.Since(start), timeout)
		require.NoError(t, e.Leave())
	})
}

// Simultaneous grants of one session need one proof, whether or not it is sent with a list.
func TestGrantsShareAProof(t *testing.T) {
	const timeout, many = 6 * time.Second, 50
	for name, alwaysList := range map[string]bool{"alone": false, "with a list": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				holder, s := fixture.TwoClients(t, srv, timeout)
				var holds []*session.Entry
				var turns []<-chan bubble.Outcome[*session.Entry]
				for i := range many {
					holds = append(holds, bubble.Acquire(t, fixture.MutexOn(holder, fmt.Sprintf("/m%d", i)).Acquire))
					q := fixture.MutexOn(s, fmt.Sprintf("/m%d", i))
					q.AlwaysList = alwaysList
					turns = append(turns, bubble.Start(t.Context(), q.Acquire))
				}
				bubble.Pass(5 * timeout)
				srv.Delay(zktest.OpMulti, 100*time.Millisecond)
				start := time.Now()
				for _, e := range holds {
					srv.Delete(e.Path())
				}
				for _, turn := range turns {
					got := <-turn
					require.NoError(t, got.Err)
					require.Equal(t, 100*time.Millisecond, got.At.Sub(start))
				}
				require.Len(t, requestsOf(srv, s, start, zktest.OpMulti), 1)
				for _, e := range holds {
					_ = e.Leave()
				}
			})
		})
	}
}

// Where a waiter has to list the queue once its predecessor is deleted, the proof is sent with the list, if one is
// needed.
func TestProofGoesWithTheList(t *testing.T) {
	const timeout, slow = 12 * time.Second, 100 * time.Millisecond
	for name, isLong := range map[string]bool{"after a long wait": true, "after a short one": false} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				holder, s := fixture.TwoClients(t, srv, timeout)
				e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
				q := fixture.MutexOn(s, "/m")
				q.AlwaysList = true
				turn := bubble.Start(t.Context(), q.Acquire)
				fixture.Settle()
				if isLong {
					bubble.Pass(5 * timeout)
				}
				srv.Delay(zktest.OpMulti, slow)
				srv.Delay(zktest.OpGetChildren2, slow)
				start := time.Now()
				srv.Delete(e.Path())
				got := <-turn
				require.NoError(t, got.Err)
				sent := []time.Duration{0} // the list
				if isLong {
					sent = []time.Duration{0, 0}
				}
				times := fixture.Times(requestsOf(srv, s, start, zktest.OpMulti, zktest.OpGetChildren2), start)
				times = slices.DeleteFunc(times, func(at time.Duration) bool { return at >= slow }) // the first heartbeat
				require.Equal(t, sent, times)
				require.NoError(t, got.Lease.Leave())
				_ = e.Leave()
			})
		})
	}
}

// At the end of a long wait the handover takes a second commit, and no more. To a recent waiter it takes one.
func TestHandoverAfterALongWait(t *testing.T) {
	const timeout, commit = 6 * time.Second, 10 * time.Millisecond
	for name, test := range map[string]struct {
		wait    time.Duration
		commits time.Duration
	}{
		"just now": {time.Second, 1}, "2T/3": {timeout*2/3 + time.Second, 2}, "a long time": {testkit.Shorter(time.Hour, 10*time.Minute), 2},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				holder, s := fixture.TwoClients(t, srv, timeout)
				e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
				turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
				bubble.Pass(test.wait)
				for len(requestsOf(srv, s, time.Now().Add(-timeout), zktest.OpMulti)) > 0 {
					bubble.Pass(time.Second) // an audit, which is due at random, just proved the session
				}
				srv.SlowCommits(commit)
				start := time.Now()
				require.NoError(t, e.Leave())
				got := <-turn
				require.NoError(t, got.Err)
				require.Equal(t, test.commits, got.At.Sub(start)/commit)
				require.NoError(t, got.Lease.Leave())
			})
		})
	}
}

// An idle session sends no more than it needs to stay alive, and the longer gaps count for what its next write proves.
// As soon as something is awaited or held, it pings as often as before.
func TestPingsOfAnIdleSession(t *testing.T) {
	const timeout, timeouts = 6 * time.Second, 20
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(timeout))
		srv.Put("/m", nil)
		start := time.Now()
		bubble.Pass(timeouts * timeout)
		idle := fixture.Times(requestsOf(srv, s, start, zktest.OpPing), start)
		require.LessOrEqual(t, len(idle), timeouts*7)
		for i := 1; i < len(idle); i++ {
			require.LessOrEqual(t, idle[i]-idle[i-1], timeout/4)
		}
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.LessOrEqual(t, time.Until(e.TrustedUntil()), 2*timeout/3)
		require.Greater(t, time.Until(e.TrustedUntil()), timeout*5/12)
		start = time.Now()
		bubble.Pass(timeouts*timeout + timeout/12)
		require.Greater(t, len(requestsOf(srv, s, start, zktest.OpPing)), timeouts*core.PingsPerTimeout)
		require.Greater(t, time.Until(e.TrustedUntil()), timeout/2)
		require.NoError(t, e.Leave())
	})
}

// A lease that follows an idle time is trusted for less at first. Its heartbeats are sooner then, so that 3T/10 is
// always left, and T/2 after T/3 as in any other lease.
func TestLeaseAfterAnIdleTime(t *testing.T) {
	const timeout, phases = 6 * time.Second, 60
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(timeout))
		srv.Put("/m", nil)
		least := timeout
		for phase := range phases {
			bubble.Pass(3*timeout + timeout/(4*phases)*time.Duration(phase))
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			for held := time.Duration(0); held < timeout; held += timeout / 600 {
				synctest.Wait()
				left := time.Until(e.TrustedUntil())
				if least = min(least, left); held > timeout/3 {
					require.GreaterOrEqual(t, left, timeout/2, "phase %d, after %v", phase, held)
				}
				bubble.Pass(timeout / 600)
			}
			require.NoError(t, e.Leave())
		}
		require.GreaterOrEqual(t, least, timeout*3/10)
		t.Logf("T/%.2f was left at least", float64(timeout)/float64(least))
	})
}
