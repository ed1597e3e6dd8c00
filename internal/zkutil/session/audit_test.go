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
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trust"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The waiter's server goes on showing the znode ahead, which is gone everywhere else. He
// finds out, and leaves that server; so does one who comes later.
func TestServerShowsWhatIsGone(t *testing.T) {
	const timeout = 6 * time.Second
	for name, late := range map[string]bool{"to a waiter": false, "to a newcomer": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t, zktest.WithServers(3))
				other := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[2]))
				e := fixture.Acquire(t, fixture.MutexOn(other, "/m"))
				s := fixture.Connect(t, srv.Config(timeout, srv.A, srv.B))
				at, _ := srv.Session(fixture.SessionID(s))
				srv.KeepShowing(e.Path(), at.Server)
				if late {
					require.NoError(t, e.Leave())
				}
				turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
				synctest.Wait()
				if !late {
					require.NoError(t, e.Leave())
				}
				fixture.Pass(3 * timeout)
				require.Empty(t, turn)
				fixture.Eventually(t, (rarely-3)*timeout+time.Second, func() bool { return len(turn) > 0 }) // with a new connection
				got := <-turn
				require.NoError(t, got.Err)
				require.NoError(t, got.Entry.Leave())
				dialled := srv.Dialled()
				require.NotEqual(t, dialled[1], dialled[2], "the server is left")
				require.Len(t, dialled, 3)
			})
		})
	}
}

// A server that shows what is gone is left, but not one that the client has come to since it
// asked the leader: that one may be behind.
func TestNextServerMayBeBehind(t *testing.T) {
	for name, since := range map[string]uint64{"the same connection": 0, "the next one": 1} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s := fixture.Connect(t, srv.Config(6*time.Second))
				srv.Put("/ghost", nil)
				s.Disprove(t.Context(), "/ghost", zk.ErrNoNode, s.Snapshot().Epoch-since)
				fixture.Pass(time.Second)
				require.Len(t, srv.Dialled(), 2-int(since))
			})
		})
	}
}

// rarely is how many session timeouts pass at most between two audits of a session that holds nothing.
const rarely = trust.TimeoutsPerAudit + trust.TimeoutsOfJitter

// found is how long it may take until reads find what was not told.
func found(timeout time.Duration) time.Duration { return 2*timeout + 100*time.Millisecond }

// A server does not tell a waiter that the znode ahead is gone. It finds out, be its session
// idle or busy with other locks, its own connection or an adopted one. The server may
// have been right not to tell: the connection is kept.
func TestWaiterIsNotTold(t *testing.T) {
	const timeout = 6 * time.Second
	tests := map[string]struct{ busy, adopted bool }{
		"idle":    {},
		"busy":    {busy: true},
		"adopted": {adopted: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				other, s := fixture.TwoClients(t, srv, timeout)
				if tt.adopted {
					s, _ = fixture.Adopt(t, srv, timeout)
				}
				e := fixture.Acquire(t, fixture.MutexOn(other, "/m"))
				turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
				synctest.Wait()
				fixture.Pass(timeout * 5 / 4)
				dialled := srv.Dialled()
				fixture.Untold(srv, func() { require.NoError(t, e.Leave()) })
				untold := time.Now()
				for end := untold.Add(found(timeout)); time.Now().Before(end) && len(turn) == 0; fixture.Pass(100 * time.Millisecond) {
					if tt.busy {
						require.NoError(t, fixture.Acquire(t, fixture.MutexOn(s, "/beside")).Leave())
					}
				}
				require.NotEmpty(t, turn)
				got := <-turn
				require.NoError(t, got.Err)
				require.Greater(t, got.At.Sub(untold), time.Millisecond, "it was told")
				require.NoError(t, got.Entry.Leave())
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
		var turns []<-chan fixture.Granted
		for i := range many {
			holds = append(holds, fixture.Acquire(t, fixture.MutexOn(other, fmt.Sprintf("/m%d", i))))
			turns = append(turns, fixture.AcquireLater(ctx, fixture.MutexOn(s, fmt.Sprintf("/m%d", i))))
			synctest.Wait()
		}
		fixture.Pass(timeout)
		for i := 0; i < many; i += session.MaxAudited {
			fixture.Untold(srv, func() { require.NoError(t, holds[i].Leave()) })
			rounds := 2*many/session.MaxAudited + 1 // their own znodes are watched, too
			fixture.Pass(timeout + timeout/trust.BeatsPerTimeout*time.Duration(rounds) + 100*time.Millisecond)
			require.NotEmpty(t, turns[i], i)
			require.NoError(t, (<-turns[i]).Entry.Leave())
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

// Somebody takes the right to read the znodes ahead away from some waiters of a session.
// They are not told when those go, so they do not wait on; where they are gone already, it is
// their turn. Nothing else in the session is harmed.
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
	beside := fixture.Acquire(t, fixture.MutexOn(s, "/beside"))
	var holds []*session.Entry
	var turns []<-chan fixture.Granted
	for i := range many {
		holds = append(holds, fixture.Acquire(t, fixture.MutexOn(other, fmt.Sprintf("/m%d", i))))
		turns = append(turns, fixture.AcquireLater(t.Context(), fixture.MutexOn(s, fmt.Sprintf("/m%d", i))))
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
	fixture.Pass(found(timeout))
	for i, turn := range turns {
		require.NotEmpty(t, turn, i)
		got := <-turn
		require.Equal(t, gone, got.Err == nil, got.Err)
		require.Equal(t, !gone, errors.Is(got.Err, zk.ErrNoAuth), got.Err)
		leave(gone, got.Entry)
	}
	leave(!gone, holds...)
	require.NoError(t, beside.Leave())
	require.Len(t, srv.Dialled(), 2)
}

// A waiter reads what it watches once in a session timeout, all in one write. It commits one audit in twenty and more,
// and nothing else. A server that tells everything is not left.
func TestAuditsOfAWaiter(t *testing.T) {
	const timeout, timeouts = 6 * time.Second, 100
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		other, s := fixture.TwoClients(t, srv, timeout)
		e := fixture.Acquire(t, fixture.MutexOn(other, "/m"))
		ctx, cancel := context.WithCancel(t.Context())
		turn := fixture.AcquireLater(ctx, fixture.MutexOn(s, "/m"))
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
		fixture.Pass(timeouts*timeout + time.Millisecond)
		srv.OnWrite(nil)
		require.InDelta(t, timeouts, reads.Load(), 2)
		require.LessOrEqual(t, int(audits.Load()), timeouts/trust.TimeoutsPerAudit)
		require.GreaterOrEqual(t, int(audits.Load()), timeouts/rarely-1)
		require.Len(t, requestsOf(srv, s, start, zktest.OpMulti), int(audits.Load()))
		require.Len(t, srv.Dialled(), 2)
		cancel()
		require.Error(t, (<-turn).Err)
		require.NoError(t, e.Leave())
		fixture.Pass(time.Millisecond)
		over := time.Now()
		fixture.Pass(2 * rarely * timeout)
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
		e := fixture.Acquire(t, fixture.MutexOn(holder, "/m"))
		waiters := make([]*session.Session, clients)
		for i := range waiters {
			waiters[i] = fixture.Connect(t, srv.Config(timeout, srv.B))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var turns []<-chan fixture.Granted
		for _, s := range waiters {
			turns = append(turns, fixture.AcquireLater(ctx, fixture.MutexOn(s, "/m")))
		}
		synctest.Wait()
		start := time.Now()
		fixture.Pass(rarely*timeout + timeout)
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

// A watch that was refused is set by the next call: nobody shares the refusal.
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

// A znode that somebody deletes and creates again is no lie of the server: it costs no connection.
func TestZnodeThatIsCreatedAgainIsNotBlamedOnTheServer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		srv.Put("/config", nil)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		_, w, err := s.Persistent().Read(t.Context(), "/config")
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
		fixture.Eventually(t, 2*rarely*6*time.Second, isBack.Load)
		fixture.Pass(time.Second)
		require.True(t, w.HasFired())
		require.Equal(t, connects, srv.Log.Count(zktest.OpConnect))
		s.ReleaseWatch(w)
	})
}
