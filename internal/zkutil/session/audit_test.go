package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The waiter's server still shows the znode ahead, which all other servers deleted. The waiter finds out and leaves
// that server, and so does a later waiter.
func TestServerShowsWhatIsGone(t *testing.T) {
	const timeout = 6 * time.Second
	for name, late := range map[string]bool{"to a waiter": false, "to a newcomer": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t, zktest.WithServers(3))
				other := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[2]))
				e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
				s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
				at, _ := srv.Session(fixture.SessionID(s))
				srv.KeepShowing(e.Path(), at.Server)
				if late {
					require.NoError(t, e.Leave())
				}
				turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
				synctest.Wait()
				if !late {
					require.NoError(t, e.Leave())
				}
				bubble.Pass(3 * timeout)
				require.Empty(t, turn)
				bubble.Eventually(t, (rarely-3)*timeout+time.Second, func() bool { return len(turn) > 0 }) // with a new connection
				got := <-turn
				require.NoError(t, got.Err)
				require.NoError(t, got.Lease.Leave())
				dialled := srv.Dialled()
				require.NotEqual(t, dialled[1], dialled[2], "the server is left")
				require.Len(t, dialled, 3)
			})
		})
	}
}

// Several waiters, each with a session of its own, are connected to the server that still shows the znode ahead of all. The first
// finds out after the time between two audits. Each of the others asks the leader soon after the end of the waiter ahead of it, also if
// its session watches more znodes than one audit checks.
func TestServerShowsSeveralWaitersWhatIsGone(t *testing.T) {
	const timeout, waiters = 6 * time.Second, 4
	for _, others := range []int{0, session.MaxAudited} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t, zktest.WithServers(3))
			other := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[2]))
			e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
			for i := range others {
				bubble.Acquire(t, fixture.MutexOn(other, fmt.Sprint("/other", i)).Acquire)
			}
			srv.KeepShowing(e.Path(), srv.A)
			require.NoError(t, e.Leave())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var turns []<-chan bubble.Outcome[*session.Entry]
			for len(turns) < waiters {
				s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
				if at, _ := srv.Session(fixture.SessionID(s)); at.Server != srv.A {
					continue
				}
				for i := range others {
					bubble.Start(ctx, fixture.MutexOn(s, fmt.Sprint("/other", i)).Acquire)
				}
				turns = append(turns, bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire))
				synctest.Wait()
			}
			limit := rarely*timeout*time.Duration(1+others/session.MaxAudited*2) + time.Second // in turns
			for _, turn := range turns {
				bubble.Eventually(t, limit, func() bool { return len(turn) > 0 })
				got := <-turn
				require.NoError(t, got.Err)
				require.NoError(t, got.Lease.Leave())
				limit = 2*timeout + time.Second
			}
		})
	}
}

// The waiter reconnects to the same server before it asks the leader about the znode that its server still shows. It asks as soon.
func TestReconnectDuringADoubt(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithServers(3))
		other := fixture.Connect(t, srv.Config(timeout, srv.B))
		e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
		srv.KeepShowing(e.Path(), srv.A)
		require.NoError(t, e.Leave())
		holder := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
		s := fixture.Connect(t, srv.Config(timeout, srv.A))
		ctx, cancel := context.WithCancel(t.Context())
		turn := bubble.Start(ctx, fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(2 * timeout)
		require.NoError(t, holder.Leave())
		bubble.Pass(timeout / 12)
		doubted := time.Now()
		require.Empty(t, turn)
		srv.Disconnect()
		bubble.Pass(timeout)
		require.NotEmpty(t, requestsOf(srv, s, doubted, zktest.OpMulti))
		cancel()
		require.Error(t, (<-turn).Err)
	})
}

// The client leaves a server that shows a deleted znode, but not a server that it reached after it asked the leader,
// because that one may be behind.
func TestNextServerMayBeBehind(t *testing.T) {
	for name, since := range map[string]uint64{"the same connection": 0, "the next one": 1} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(6*time.Second))
				srv.Put("/ghost", nil)
				s.Disprove(t.Context(), "/ghost", zk.ErrNoNode, s.Snapshot().Epoch-since)
				bubble.Pass(time.Second)
				require.Len(t, srv.Dialled(), 2-int(since))
			})
		})
	}
}

// rarely is how many session timeouts pass at most between two audits of a session that holds nothing.
const rarely = core.TimeoutsPerAudit + core.TimeoutsOfJitter

// found is how long it may take until reads find a change without a notification.
func found(timeout time.Duration) time.Duration { return 2*timeout + 100*time.Millisecond }

// A server does not notify a waiter that the znode ahead is deleted. The waiter finds out, whether its session is idle
// or busy with other locks. The server may be right not to notify, so the connection is kept.
func TestWaiterIsNotTold(t *testing.T) {
	const timeout = 6 * time.Second
	for name, isBusy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				other, s := fixture.TwoClients(t, srv, timeout)
				e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
				turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
				synctest.Wait()
				bubble.Pass(timeout * 5 / 4)
				dialled := srv.Dialled()
				fixture.Untold(srv, func() { require.NoError(t, e.Leave()) })
				untold := time.Now()
				for end := untold.Add(found(timeout)); time.Now().Before(end) && len(turn) == 0; bubble.Pass(100 * time.Millisecond) {
					if isBusy {
						require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/beside").Acquire).Leave())
					}
				}
				require.NotEmpty(t, turn)
				got := <-turn
				require.NoError(t, got.Err)
				require.Greater(t, got.At.Sub(untold), time.Millisecond, "it was told")
				require.NoError(t, got.Lease.Leave())
				require.Equal(t, dialled, srv.Dialled())
			})
		})
	}
}

// Of hundreds of waiters in one session each is found: T/6 later for each 128 znodes that are watched.
func TestOneOfManyIsNotTold(t *testing.T) {
	const timeout, many = 6 * time.Second, 3*session.MaxAudited + 1
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		other, s := fixture.TwoClients(t, srv, timeout)
		ctx, cancel := context.WithCancel(t.Context())
		var holds []*session.Entry
		var turns []<-chan bubble.Outcome[*session.Entry]
		for i := range many {
			holds = append(holds, bubble.Acquire(t, fixture.MutexOn(other, fmt.Sprintf("/m%d", i)).Acquire))
			turns = append(turns, bubble.Start(ctx, fixture.MutexOn(s, fmt.Sprintf("/m%d", i)).Acquire))
			synctest.Wait()
		}
		bubble.Pass(timeout)
		for i := 0; i < many; i += session.MaxAudited {
			fixture.Untold(srv, func() { require.NoError(t, holds[i].Leave()) })
			rounds := 2*many/session.MaxAudited + 1 // their own znodes are watched, too
			bubble.Pass(timeout + timeout/core.BeatsPerTimeout*time.Duration(rounds) + 100*time.Millisecond)
			require.NotEmpty(t, turns[i], i)
			require.NoError(t, (<-turns[i]).Lease.Leave())
		}
		cancel()
		for i, turn := range turns {
			if i%session.MaxAudited != 0 {
				require.ErrorIs(t, (<-turn).Err, context.Canceled)
				require.NoError(t, holds[i].Leave())
			}
		}
	})
}

// Another client takes the right to read the znodes ahead away from some waiters of a session. They are not notified of
// the deletions, so they do not wait on; if the znodes are deleted already, it is their turn. Nothing else in the
// session is harmed.
func TestRightToReadIsTakenFromWaiters(t *testing.T) {
	for name, gone := range map[string]bool{"and the znodes stay": false, "and the znodes go": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) { takeRightToRead(t, gone) })
		})
	}
}

func takeRightToRead(t *testing.T, gone bool) {
	t.Helper()
	const timeout, many = 6 * time.Second, 8
	srv := fixture.NewEnsemble(t)
	other := fixture.Connect(t, srv.Config(timeout, srv.A))
	cfg := srv.Config(timeout, srv.B)
	cfg.SuspendEnds = true
	s := fixture.Connect(t, cfg)
	beside := bubble.Acquire(t, fixture.MutexOn(s, "/beside").Acquire)
	var holds []*session.Entry
	var turns []<-chan bubble.Outcome[*session.Entry]
	for i := range many {
		holds = append(holds, bubble.Acquire(t, fixture.MutexOn(other, fmt.Sprintf("/m%d", i)).Acquire))
		turns = append(turns, bubble.Start(t.Context(), fixture.MutexOn(s, fmt.Sprintf("/m%d", i)).Acquire))
	}
	synctest.Wait()
	leave := func(when bool, entries ...*session.Entry) {
		for _, e := range entries {
			if when {
				require.NoError(t, e.Leave())
			}
		}
	}
	for _, e := range holds {
		_, err := other.Conn().SetACL(e.Path(), zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
		require.NoError(t, err)
		leave(gone, e)
	}
	bubble.Pass(found(timeout))
	for i, turn := range turns {
		require.NotEmpty(t, turn, i)
		got := <-turn
		require.Equal(t, gone, got.Err == nil, got.Err)
		require.Equal(t, !gone, errors.Is(got.Err, zk.ErrNoAuth), got.Err)
		leave(gone, got.Lease)
	}
	leave(!gone, holds...)
	require.NoError(t, beside.Leave())
	require.Len(t, srv.Dialled(), 2)
}

// Another lock of the same client is busy: the contenders ahead in its queue leave all the time, which puts no audit off.
func TestDoubtBesideABusyLock(t *testing.T) {
	const timeout, each = 6 * time.Second, 10
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithServers(3))
		other := fixture.Connect(t, srv.Config(timeout, srv.B))
		e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
		srv.KeepShowing(e.Path(), srv.A)
		require.NoError(t, e.Leave())
		holder := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
		busy := bubble.Acquire(t, fixture.MutexOn(other, "/busy").Acquire)
		var leaves []context.CancelFunc
		for range 2 * each {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			leaves = append(leaves, cancel)
			bubble.Start(ctx, fixture.MutexOn(other, "/busy").Acquire)
			synctest.Wait()
		}
		s := fixture.Connect(t, srv.Config(timeout, srv.A))
		ctx, cancel := context.WithCancel(t.Context())
		turns := []<-chan bubble.Outcome[*session.Entry]{
			bubble.Start(ctx, fixture.MutexOn(s, "/m").Acquire), bubble.Start(ctx, fixture.MutexOn(s, "/busy").Acquire),
		}
		bubble.Pass(2 * timeout)
		require.NoError(t, holder.Leave())
		doubted := time.Now()
		for i := range each {
			leaves[len(leaves)-1-i]()
			bubble.Pass(timeout / each)
		}
		require.NotEmpty(t, requestsOf(srv, s, doubted, zktest.OpMulti))
		cancel()
		for _, turn := range turns {
			require.Error(t, (<-turn).Err)
		}
		require.NoError(t, busy.Leave())
	})
}

// Contenders ahead of a waiter give up all the time. The waiter commits an audit in a session timeout at most, and none if the next one
// gives up within T/6. It stays with its server.
func TestAuditsOfAWaiterBehindOthersThatGiveUp(t *testing.T) {
	const timeout, timeouts = 6 * time.Second, 12
	for each, audits := range map[int]struct{ least, most int }{1: {timeouts / 2, timeouts}, 4: {0, timeouts}, 10: {0, 0}} { // in a session timeout
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			other, s := fixture.TwoClients(t, srv, timeout)
			e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
			var cancels []context.CancelFunc
			var ahead []<-chan bubble.Outcome[*session.Entry]
			for range timeouts * each {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cancels, ahead = append(cancels, cancel), append(ahead, bubble.Start(ctx, fixture.MutexOn(other, "/m").Acquire))
				synctest.Wait()
			}
			turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
			fixture.Settle()
			start := time.Now()
			for i := range cancels {
				last := len(cancels) - 1 - i
				cancels[last]()
				require.ErrorIs(t, (<-ahead[last]).Err, context.Canceled)
				bubble.Pass(timeout / time.Duration(each))
			}
			n := len(requestsOf(srv, s, start, zktest.OpMulti))
			require.LessOrEqual(t, n, audits.most, each)
			require.GreaterOrEqual(t, n, audits.least, each)
			require.Len(t, srv.Dialled(), 2)
			require.NoError(t, e.Leave())
			require.NoError(t, (<-turn).Err)
		})
	}
}

// A waiter reads all that it watches once in a session timeout, in one write. It commits one audit in twenty and more,
// and nothing else. It does not leave a server that notifies of everything.
func TestAuditsOfAWaiter(t *testing.T) {
	const timeout, timeouts = 6 * time.Second, 100
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		other, s := fixture.TwoClients(t, srv, timeout)
		e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
		ctx, cancel := context.WithCancel(t.Context())
		turn := bubble.Start(ctx, fixture.MutexOn(s, "/m").Acquire)
		fixture.Settle()
		queue := srv.Children("/m")
		own := "/m/" + queue[slices.IndexFunc(queue, func(name string) bool { return "/m/"+name != e.Path() })]
		start := time.Now()
		var audits, reads atomic.Int32 // of the waiter: both znodes in one transaction, or in one write
		srv.OnWrite(func(frame []byte) error {
			switch isBoth := bytes.Contains(frame, []byte(e.Path())) && bytes.Contains(frame, []byte(own)); {
			case isBoth && opOf(frame) == proto.OpMulti:
				audits.Add(1)
			case isBoth && opOf(frame) == proto.OpGetData:
				reads.Add(1)
			}
			return nil
		})
		bubble.Pass(timeouts*timeout + time.Millisecond)
		srv.OnWrite(nil)
		require.InDelta(t, timeouts, reads.Load(), 2)
		require.LessOrEqual(t, int(audits.Load()), timeouts/core.TimeoutsPerAudit)
		require.GreaterOrEqual(t, int(audits.Load()), timeouts/rarely-1)
		require.Len(t, requestsOf(srv, s, start, zktest.OpMulti), int(audits.Load()))
		require.Len(t, srv.Dialled(), 2)
		cancel()
		require.Error(t, (<-turn).Err)
		require.NoError(t, e.Leave())
		bubble.Pass(time.Millisecond)
		over := time.Now()
		bubble.Pass(2 * rarely * timeout)
		require.Empty(t, fixture.Times(srv.Log.Requests(zktest.OpMulti, zktest.OpGetData), over), "nobody waits for anything")
	})
}

// requestsOf are the requests of one session since a start.
func requestsOf(srv *fixture.Ensemble, s *session.Session, start time.Time, ops ...zktest.Op) (requests []zktest.Request) {
	for _, r := range srv.Log.Requests(ops...) {
		if r.Session == fixture.SessionID(s) && !r.Time.Before(start) {
			requests = append(requests, r)
		}
	}
	return requests
}

// Clients that begin to wait at the same time do not audit at the same time.
func TestAuditsDoNotMarchInStep(t *testing.T) {
	const timeout, clients = 6 * time.Second, 20
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		srv.Put("/m", nil)
		holder := fixture.Connect(t, srv.Config(timeout, srv.A))
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		waiters := make([]*session.Session, clients)
		for i := range waiters {
			waiters[i] = fixture.Connect(t, srv.Config(timeout, srv.B))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var turns []<-chan bubble.Outcome[*session.Entry]
		for _, s := range waiters {
			turns = append(turns, bubble.Start(ctx, fixture.MutexOn(s, "/m").Acquire))
		}
		synctest.Wait()
		start := time.Now()
		bubble.Pass(rarely*timeout + timeout)
		var at []time.Duration
		for _, s := range waiters {
			audits := fixture.Times(requestsOf(srv, s, start, zktest.OpMulti), start)
			require.Len(t, audits, 1)
			at = append(at, audits[0])
		}
		require.Greater(t, slices.Max(at)-slices.Min(at), timeout)
		cancel()
		for _, turn := range turns {
			require.Error(t, (<-turn).Err)
		}
		require.NoError(t, e.Leave())
	})
}

// A refused watch is set by the next call. No caller shares the refusal.
func TestRefusedWatchIsNotShared(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		_, err := s.Watch(t.Context(), "/x")
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.Zero(t, s.Tables().Watches)
		srv.Put("/x", nil)
		w, err := s.Watch(t.Context(), "/x")
		require.NoError(t, err)
		srv.Delete("/x")
		synctest.Wait()
		require.True(t, w.IsGone())
	})
}

// A znode that another client deletes and creates again is no fault of the server, and costs no connection.
func TestZnodeThatIsCreatedAgainIsNotBlamedOnTheServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		srv.Put("/config", nil)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		_, w, err := znodes.ReadAndWatch(t.Context(), s, "/config")
		require.NoError(t, err)
		s.Retain()
		defer s.Release()
		var isDeleted, isBack atomic.Bool
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			switch {
			case r.Op == zktest.OpMulti && r.Path == "/config" && isDeleted.CompareAndSwap(false, true):
				srv.Delete("/config")
			case r.Op == zktest.OpGetData && isDeleted.Load() && isBack.CompareAndSwap(false, true):
				srv.Put("/config", nil)
			}
			return zktest.Fault{}
		})
		connects := srv.Log.Count(zktest.OpConnect)
		bubble.Eventually(t, 2*rarely*6*time.Second, isBack.Load)
		bubble.Pass(time.Second)
		require.True(t, w.HasFired())
		require.Equal(t, connects, srv.Log.Count(zktest.OpConnect))
		s.ReleaseWatch(w)
	})
}
