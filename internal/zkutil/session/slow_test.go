package session_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
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
						e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
						bubble.Pass(timeout + timeout/6*time.Duration(phase)/time.Duration(schedules()))
						srv.SlowCommits(lateBy(timeout, parts))
						bubble.Pass(10 * timeout)
						require.NoError(t, e.Context().Err(), "phase %d", phase)
						srv.SlowCommits(0)
						require.NoError(t, e.Leave())
					})
				}
			})
		}
	}
}

// A contender gets a lock within 2T after the quorum, or every handshake, becomes slow. A client that loses a hold by
// that, as by commits of T/2, may need T/3 more. It leaves its server after T/3, and with it the answer to its create.
// Then four answers follow, after T/2 each: to the search for the znode, to the look at the queue, to a proof that the
// late answers before it cut short, and to the proof after that.
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
							e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
							bubble.Pass(timeout + timeout/6*time.Duration(phase)/time.Duration(schedules()))
							begin(srv, lateBy(timeout, parts))
							start := time.Now()
							first, other := bubble.Start(t.Context(), fixture.MutexOn(idle, "/a").Acquire), bubble.Start(t.Context(), fixture.MutexOn(holder, "/b").Acquire)
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

// A waiter has nothing to save. It stays with a server whose quorum is slow, also while its reads for lost
// notifications have no answer, because they are behind a write.
func TestWaiterLeavesNoSlowServer(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithServers(3))
		holder, waiter := fixture.Connect(t, srv.Config(timeout, srv.A)), fixture.Connect(t, srv.Config(timeout, srv.Addrs()...))
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		turns := []<-chan bubble.Outcome[*session.Entry]{bubble.Start(t.Context(), fixture.MutexOn(waiter, "/m").Acquire)}
		bubble.Pass(timeout)
		dials, server := len(srv.Dialled()), waiter.Conn().Server()
		srv.SlowCommits(lateBy(timeout, 17)) // longer than a waiter waits for reads, shorter than the holder for heartbeats
		for range 24 {                       // whenever the reads are due
			turns = append(turns, bubble.Start(t.Context(), fixture.MutexOn(waiter, "/m").Acquire))
			bubble.Pass(timeout * 13 / 12)
		}
		require.Len(t, srv.Dialled(), dials)
		require.Equal(t, server, waiter.Conn().Server())
		srv.SlowCommits(0)
		require.NoError(t, e.Leave())
		for _, turn := range turns {
			require.NoError(t, (<-turn).Lease.Leave())
		}
	})
}

// If the second server does not answer a heartbeat either, the quorum is slow, and a third one is not tried.
func TestSlowQuorumCostsOneConnection(t *testing.T) {
	const timeout = 12 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithServers(3))
		s := fixture.Connect(t, srv.Config(timeout, srv.Addrs()...))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(timeout)
		dials := len(srv.Dialled())
		srv.SlowCommits(timeout * 11 / 24)
		bubble.Pass(10 * timeout)
		require.Len(t, srv.Dialled(), dials+1)
		srv.SlowCommits(0)
		_ = e.Leave()
	})
}

// A client that lost its hold because the quorum is slow is served within T when it asks again.
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
						e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
						bubble.Pass(timeout + timeout/6*time.Duration(phase)/time.Duration(schedules()))
						srv.SlowCommits(lateBy(timeout, parts))
						select {
						case <-e.Context().Done():
						case <-time.After(3 * timeout): // it stands
						}
						bubble.Pass(timeout * time.Duration(phase) / time.Duration(schedules()))
						start := time.Now()
						got := <-bubble.Start(t.Context(), fixture.MutexOn(s, "/b").Acquire)
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
		turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(500 * time.Millisecond)
		synctest.Wait()
		srv.OnWrite(nil)
		require.Equal(t, []int32{proto.OpGetChildren2, proto.OpSync, proto.OpGetChildren2}, sent, "the first went with the create")
		got := <-turn
		require.NoError(t, got.Err)
		require.NoError(t, got.Lease.Leave())
	})
}

// The time that a proof took counts for the pause after it (see place.turn).
func TestSlowProofsAreNotPaced(t *testing.T) {
	const timeout = 30 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(timeout)
		var jump atomic.Int64
		cfg.Suspended = func() time.Duration { return time.Duration(jump.Load()) }
		s := fixture.Connect(t, cfg)
		srv.Put("/m", nil)
		bubble.Pass(10 * time.Second)
		jump.Store(int64(time.Hour))
		srv.SlowCommits(timeout / 8)
		start := time.Now()
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.LessOrEqual(t, time.Since(start), timeout/2, "with a pause of T/12 after each proof it takes longer")
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
						e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
						bubble.Pass(timeout + timeout/6*time.Duration(phase)/time.Duration(schedules()))
						restore := srv.Delay(zktest.OpMulti, lateBy(timeout, parts))
						bubble.Pass(30 * timeout)
						require.NoError(t, e.Context().Err(), "phase %d", phase)
						restore()
						require.NoError(t, e.Leave())
					})
				}
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
				e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
				srv.SlowCommits(lateBy(timeout, parts))
				bubble.Pass(5*timeout + timeout/3*time.Duration(phase)/time.Duration(schedules()))
				srv.SlowCommits(timeout / 3)
				bubble.Pass(10 * timeout)
				require.NoError(t, e.Context().Err(), "%d of 48, phase %d", parts, phase)
				srv.SlowCommits(0)
				require.NoError(t, e.Leave())
			})
		}
	}
}

// A quorum whose slowness changes all the time costs no lease: with every commit, or in hiccups whose commits all end together.
func TestIrregularQuorumCostsNoLease(t *testing.T) {
	type change func(srv *fixture.Ensemble, r *rand.Rand, most time.Duration)
	for name, test := range map[string]struct {
		change change
		parts  []int // of 48, the longest commit
	}{
		"jitter":  {changeWithEachCommit, []int{7, 12, 16}},
		"hiccups": {hiccup, []int{7, 12, 16, 20}},
	} {
		for _, servers := range []int{1, 3} {
			for _, parts := range test.parts {
				t.Run(fmt.Sprintf("%s, %d servers, %d of 48", name, servers, parts), func(t *testing.T) {
					t.Parallel()
					for seed := range schedules() {
						r := rand.New(rand.NewPCG(uint64(seed), uint64(parts))) //nolint:gosec // a number of the test
						keepALease(t, servers, func(srv *fixture.Ensemble) { test.change(srv, r, lateBy(irregularTimeout, parts)) })
					}
				})
			}
		}
	}
}

const irregularTimeout = 12 * time.Second

func changeWithEachCommit(srv *fixture.Ensemble, r *rand.Rand, most time.Duration) {
	srv.SlowCommits(time.Duration(r.Int64N(int64(most))))
	bubble.Pass(time.Duration(r.Int64N(int64(irregularTimeout / 4))))
}

func hiccup(srv *fixture.Ensemble, r *rand.Rand, most time.Duration) {
	for until := time.Now().Add(most/2 + time.Duration(r.Int64N(int64(most/2)))); time.Now().Before(until); {
		srv.SlowCommits(time.Until(until))
		bubble.Pass(irregularTimeout / 80)
	}
	srv.SlowCommits(0)
	bubble.Pass(time.Duration(r.Int64N(int64(irregularTimeout / 3))))
}

// keepALease requires that a lease outlives 15 session timeouts while the quorum changes.
func keepALease(t *testing.T, servers int, change func(srv *fixture.Ensemble)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithServers(servers+1))
		s := fixture.Connect(t, srv.Config(irregularTimeout, srv.Addrs()[:servers]...))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(irregularTimeout)
		for end := time.Now().Add(15 * irregularTimeout); time.Now().Before(end); {
			change(srv)
		}
		srv.SlowCommits(0)
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Leave())
	})
}
