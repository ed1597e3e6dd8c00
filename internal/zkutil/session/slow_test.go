package session_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// slownesses are the parts of the session timeout, in 48ths, by which answers are late: T/6 to T/2.
var slownesses = []int{8, 10, 12, 14, 16, 18, 20, 22, 24}

// schedules is how many phases of the heartbeat each slowness begins in.
func schedules() int {
	if *testkit.Exhaustive {
		return 100
	}
	return testkit.Shorter(8, 2)
}

// A quorum that commits within T/3 costs no lease, whenever it becomes slow.
func TestSlowQuorumCostsNoLease(t *testing.T) {
	const timeout = 6 * time.Second
	for _, servers := range []int{1, 3} {
		for _, parts := range slownesses[:5] {
			t.Run(fmt.Sprintf("%d servers, %d of 48", servers, parts), func(t *testing.T) {
				t.Parallel()
				for phase := range schedules() {
					testkit.Bubble(t, func(t *testing.T) {
						srv := fixture.NewEnsemble(t, zktest.WithServers(servers+1))
						s := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[:servers]...))
						e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
						fixture.Pass(timeout + timeout/6*time.Duration(phase)/time.Duration(schedules()))
						srv.SlowCommits(lateBy(timeout, parts))
						fixture.Pass(10 * timeout)
						require.NoError(t, e.Context().Err(), "phase %d", phase)
						srv.SlowCommits(0)
						require.NoError(t, e.Leave())
					})
				}
			})
		}
	}
}

// Whoever wants a lock gets it within 2T after the quorum, or every handshake, has become slow. A client that has lost a
// hold by that, as commits of T/2 do, may need T/3 more: it has left its server after T/3, and with it the answer to its
// create. Then come four answers, after T/2 each: to the search for the znode, to the look at the queue, to a proof
// that the late answers before it cut short, and to the proof after that.
func TestServedWhileSlow(t *testing.T) {
	const timeout = 12 * time.Second
	slow := map[string]func(srv *fixture.Ensemble, by time.Duration){
		"commits":    func(srv *fixture.Ensemble, by time.Duration) { srv.SlowCommits(by) },
		"handshakes": func(srv *fixture.Ensemble, by time.Duration) { srv.SlowHandshakes(by); srv.Disconnect() },
	}
	for name, begin := range slow {
		for _, servers := range []int{1, 3} {
			for _, parts := range slownesses {
				t.Run(fmt.Sprintf("%s, %d servers, %d of 48", name, servers, parts), func(t *testing.T) {
					t.Parallel()
					for phase := range schedules() {
						testkit.Bubble(t, func(t *testing.T) {
							srv := fixture.NewEnsemble(t, zktest.WithServers(servers+1))
							holder := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[:servers]...))
							idle := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[:servers]...))
							srv.Put("/a", nil)
							srv.Put("/b", nil)
							e := fixture.Acquire(t, fixture.MutexOn(holder, "/m"))
							fixture.Pass(timeout + timeout/6*time.Duration(phase)/time.Duration(schedules()))
							begin(srv, lateBy(timeout, parts))
							start := time.Now()
							first, other := fixture.AcquireLater(t.Context(), fixture.MutexOn(idle, "/a")), fixture.AcquireLater(t.Context(), fixture.MutexOn(holder, "/b"))
							got := <-first
							require.NoError(t, got.Err)
							require.LessOrEqual(t, got.At.Sub(start), 2*timeout, "phase %d", phase)
							got = <-other
							require.NoError(t, got.Err)
							limit := 2 * timeout
							if name == "commits" && parts == 24 && e.Context().Err() != nil {
								limit += timeout/3 + 100*time.Millisecond // and the pause before the search
							}
							require.LessOrEqual(t, got.At.Sub(start), limit, "phase %d", phase)
							srv.SlowCommits(0)
							srv.SlowHandshakes(0)
						})
					}
				})
			}
		}
	}
}

// lateBy is so many 48ths of a timeout.
func lateBy(timeout time.Duration, parts int) time.Duration {
	return timeout / 48 * time.Duration(parts)
}

// A waiter has nothing to save: it stays with a server whose quorum is slow, also while the reads by which it looks for
// what it was not told have no answer, because they are behind a write.
func TestWaiterLeavesNoSlowServer(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithServers(3))
		holder, waiter := fixture.Connect(t, srv.Config(timeout, srv.A)), fixture.Connect(t, srv.Config(timeout, srv.Addrs()...))
		e := fixture.Acquire(t, fixture.MutexOn(holder, "/m"))
		turns := []<-chan fixture.Granted{fixture.AcquireLater(t.Context(), fixture.MutexOn(waiter, "/m"))}
		fixture.Pass(timeout)
		dials, server := len(srv.Dialled()), waiter.Conn().Server()
		srv.SlowCommits(lateBy(timeout, 17)) // longer than a waiter waits for reads, shorter than the holder for heartbeats
		for range 24 {                       // whenever the reads come
			turns = append(turns, fixture.AcquireLater(t.Context(), fixture.MutexOn(waiter, "/m")))
			fixture.Pass(timeout * 13 / 12)
		}
		require.Len(t, srv.Dialled(), dials)
		require.Equal(t, server, waiter.Conn().Server())
		srv.SlowCommits(0)
		require.NoError(t, e.Leave())
		for _, turn := range turns {
			require.NoError(t, (<-turn).Entry.Leave())
		}
	})
}

// If the second server does not answer a heartbeat either, the quorum is slow, and a third one is not tried.
func TestSlowQuorumCostsOneConnection(t *testing.T) {
	const timeout = 12 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithServers(3))
		s := fixture.Connect(t, srv.Config(timeout, srv.Addrs()...))
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		fixture.Pass(timeout)
		dials := len(srv.Dialled())
		srv.SlowCommits(timeout * 11 / 24)
		fixture.Pass(10 * timeout)
		require.Len(t, srv.Dialled(), dials+1)
		srv.SlowCommits(0)
		_ = e.Leave()
	})
}

// A client that has lost its hold because the quorum is slow is served within T when it asks again.
func TestServedAfterALoss(t *testing.T) {
	const timeout = 12 * time.Second
	for _, servers := range []int{1, 3} {
		for _, parts := range slownesses[5:] {
			t.Run(fmt.Sprintf("%d servers, %d of 48", servers, parts), func(t *testing.T) {
				t.Parallel()
				for phase := range schedules() {
					testkit.Bubble(t, func(t *testing.T) {
						srv := fixture.NewEnsemble(t, zktest.WithServers(servers+1))
						s := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[:servers]...))
						srv.Put("/b", nil)
						e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
						fixture.Pass(timeout + timeout/6*time.Duration(phase)/time.Duration(schedules()))
						srv.SlowCommits(lateBy(timeout, parts))
						select {
						case <-e.Context().Done():
						case <-time.After(3 * timeout): // it stands
						}
						fixture.Pass(timeout * time.Duration(phase) / time.Duration(schedules()))
						start := time.Now()
						got := <-fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/b"))
						require.NoError(t, got.Err)
						require.LessOrEqual(t, got.At.Sub(start), timeout, "phase %d", phase)
						srv.SlowCommits(0)
					})
				}
			})
		}
	}
}

// The list of a search is sent behind the sync, without a wait for its answer.
func TestSearchCostsOneAnswer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(12*time.Second))
		srv.Put("/m", nil)
		srv.Once(zktest.OpCreate2, zktest.Fault{Lost: zktest.ReplyLost})
		var sent []int32 // operations
		srv.OnWrite(func(frame []byte) error {
			for _, request := range fixture.Frames(frame) {
				d := proto.NewDecoder(request)
				if _, _, op := d.Int32(), d.Int32(), d.Int32(); op == proto.OpSync || op == proto.OpGetChildren2 {
					sent = append(sent, op)
				}
			}
			return nil
		})
		srv.Delay(zktest.OpSync, time.Second)
		turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
		fixture.Pass(500 * time.Millisecond)
		synctest.Wait()
		srv.OnWrite(nil)
		require.Equal(t, []int32{proto.OpGetChildren2, proto.OpSync, proto.OpGetChildren2}, sent, "the first went with the create")
		got := <-turn
		require.NoError(t, got.Err)
		require.NoError(t, got.Entry.Leave())
	})
}

// The time that a proof took counts for the pause after it: see place.turn.
func TestSlowProofsAreNotPaced(t *testing.T) {
	const timeout = 30 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(timeout)
		var jump atomic.Int64
		cfg.Suspended = func() time.Duration { return time.Duration(jump.Load()) }
		s := fixture.Connect(t, cfg)
		srv.Put("/m", nil)
		fixture.Pass(10 * time.Second)
		jump.Store(int64(time.Hour))
		srv.SlowCommits(timeout / 8)
		start := time.Now()
		e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
		require.LessOrEqual(t, time.Since(start), timeout*5/12, "with a pause of T/12 after each proof it takes longer")
		srv.SlowCommits(0)
		require.NoError(t, e.Leave())
	})
}

// A server that answers one write after the other costs no lease as long as each answer takes no more than T/4, whenever it becomes slow:
// heartbeats don't queue up behind each other.
func TestServerThatAnswersInTurnCostsNoLease(t *testing.T) {
	const timeout = 4 * time.Second
	for _, servers := range []int{1, 3} {
		for _, parts := range []int{6, 8, 9, 10, 11, 12} { // of 48
			t.Run(fmt.Sprintf("%d servers, %d of 48", servers, parts), func(t *testing.T) {
				t.Parallel()
				for phase := range schedules() {
					testkit.Bubble(t, func(t *testing.T) {
						srv := fixture.NewEnsemble(t, zktest.WithServers(servers+1))
						s := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[:servers]...))
						e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
						fixture.Pass(timeout + timeout/6*time.Duration(phase)/time.Duration(schedules()))
						restore := srv.Delay(zktest.OpMulti, lateBy(timeout, parts))
						fixture.Pass(30 * timeout)
						require.NoError(t, e.Context().Err(), "phase %d", phase)
						restore()
						require.NoError(t, e.Leave())
					})
				}
			})
		}
	}
}

// The same on an adopted connection, where a write proves less, with answers of T/6.
func TestServerThatAnswersInTurnCostsNoAdoptedLease(t *testing.T) {
	const timeout = 6 * time.Second
	for _, parts := range []int{6, 7, 8} { // of 48
		for phase := range schedules() {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s, _ := fixture.Adopt(t, srv, timeout)
				e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
				fixture.Pass(timeout + timeout/6*time.Duration(phase)/time.Duration(schedules()))
				restore := srv.Delay(zktest.OpMulti, lateBy(timeout, parts))
				fixture.Pass(30 * timeout)
				require.NoError(t, e.Context().Err(), "%d of 48, phase %d", parts, phase)
				restore()
				require.NoError(t, e.Leave())
			})
		}
	}
}

// A holder that sends one heartbeat at a time, because each answer takes T/4, is not caught by commits of T/3.
func TestQuorumThatBecomesSlowerCostsNoLease(t *testing.T) {
	const timeout = 6 * time.Second
	for _, parts := range []int{8, 10, 12} { // of 48
		for phase := range schedules() {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(timeout))
				e := fixture.Acquire(t, fixture.MutexOn(s, "/m"))
				srv.SlowCommits(lateBy(timeout, parts))
				fixture.Pass(5*timeout + timeout/3*time.Duration(phase)/time.Duration(schedules()))
				srv.SlowCommits(timeout / 3)
				fixture.Pass(10 * timeout)
				require.NoError(t, e.Context().Err(), "%d of 48, phase %d", parts, phase)
				srv.SlowCommits(0)
				require.NoError(t, e.Leave())
			})
		}
	}
}
