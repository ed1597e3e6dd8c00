package session_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// every returns n moments with one period between them, from the first on.
func every(first, period time.Duration, n int) []time.Duration {
	at := make([]time.Duration, n)
	for i := range at {
		at[i] = first + time.Duration(i)*period
	}
	return at
}

func TestHeartbeatEverySixthWhileHeld(t *testing.T) {
	for _, timeout := range []time.Duration{1200 * time.Millisecond, 6 * time.Second, 60 * time.Second} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(timeout))
			start := time.Now()
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			bubble.Pass(2*timeout + timeout/12)
			require.Equal(t, every(timeout/6, timeout/6, 12), fixture.Times(srv.Log.Requests(zktest.OpMulti), start))
			for _, r := range srv.Log.Requests(zktest.OpMulti) {
				require.Equal(t, e.Path(), r.Path, "the heartbeat checks a znode of ours")
			}
			require.NoError(t, e.Leave())
			held := len(srv.Log.Requests(zktest.OpMulti))
			bubble.Pass(5 * timeout)
			require.Len(t, srv.Log.Requests(zktest.OpMulti), held, "heartbeat of an idle session")
		})
	}
}

// A waiter commits nothing. The proof of its session is sent at its turn, and its heartbeats begin with its hold.
func TestNoHeartbeatWhileAwaited(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		const timeout = 6 * time.Second
		holder, waiter := fixture.Connect(t, srv.Config(timeout)), fixture.Connect(t, srv.Config(timeout))
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		turn := bubble.Start(t.Context(), fixture.MutexOn(waiter, "/m").Acquire)
		bubble.Pass(10*timeout + timeout/7)
		require.Empty(t, requestsOf(srv, waiter, time.Time{}, zktest.OpMulti))
		start := time.Now()
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.Err)
		require.Equal(t, start.Add(2*timeout/3), got.Lease.TrustedUntil())
		bubble.Pass(timeout + timeout/12)
		require.Equal(t, every(0, timeout/6, 7), fixture.Times(requestsOf(srv, waiter, start, zktest.OpMulti), start))
		require.NoError(t, got.Lease.Leave())
	})
}

// A hold that is granted on a proof of some time ago is proven again at once.
func TestHeartbeatAtTheGrantOnAnOldProof(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		const timeout = 6 * time.Second
		holder, waiter := fixture.Connect(t, srv.Config(timeout)), fixture.Connect(t, srv.Config(timeout))
		e := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
		start := time.Now()
		turn := bubble.Start(t.Context(), fixture.MutexOn(waiter, "/m").Acquire)
		bubble.Pass(timeout * 5 / 16) // of 2T/3
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.Err)
		synctest.Wait()
		require.Equal(t, every(timeout*5/16, 0, 1), fixture.Times(requestsOf(srv, waiter, start, zktest.OpMulti), start))
		bubble.Pass(timeout)
		require.NoError(t, got.Lease.Context().Err())
		require.NoError(t, got.Lease.Leave())
	})
}

func TestOneHeartbeatForAllHoldsOfASession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		for _, dir := range []string{"/a", "/b", "/c"} {
			e := bubble.Acquire(t, fixture.MutexOn(s, dir).Acquire)
			defer func() { require.NoError(t, e.Leave()) }()
		}
		start := time.Now()
		bubble.Pass(5500 * time.Millisecond)
		require.Equal(t, every(time.Second, time.Second, 5), fixture.Times(srv.Log.Requests(zktest.OpMulti), start))
	})
}

func TestNoHeartbeatWhileIdle(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		fixture.Connect(t, srv.Config(6*time.Second))
		bubble.Pass(time.Minute)
		require.Empty(t, srv.Log.Requests(zktest.OpMulti))
	})
}

// Then the watches are checked now and then, and that is all.
func TestNoHeartbeatWhileOtherWritesFlow(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		srv.Put("/other", nil)
		for range 100 {
			bubble.Pass(900 * time.Millisecond)
			_, err := s.Request(t.Context(), wire.Request{Op: proto.OpSetData, Path: "/other", Version: -1})
			require.NoError(t, err)
			require.Equal(t, time.Now().Add(4*time.Second), e.TrustedUntil(), "a write of ours is a proof")
		}
		require.LessOrEqual(t, len(srv.Log.Requests(zktest.OpMulti)), 15*core.AuditsPerTimeout)
		written := time.Now()
		bubble.Pass(1100 * time.Millisecond)
		beats := srv.Log.Requests(zktest.OpMulti)
		require.Equal(t, written.Add(time.Second), beats[len(beats)-1].Time)
		require.NoError(t, e.Leave())
	})
}

// A refused write says that the line works, and nothing about the session.
func TestRefusedWriteProvesNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		proven := e.TrustedUntil()
		bubble.Pass(500 * time.Millisecond)
		_, err := s.Request(t.Context(), wire.Request{Op: proto.OpDelete, Path: "/none", Version: -1})
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.Equal(t, proven, e.TrustedUntil())
		require.NoError(t, e.Leave())
	})
}

// A read proves nothing, because a server that is cut off answers it.
func TestReadProvesNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		proven := e.TrustedUntil()
		bubble.Pass(500 * time.Millisecond)
		_, err := fixture.MutexOn(s, "/m").Participants(t.Context())
		require.NoError(t, err)
		require.Equal(t, proven, e.TrustedUntil())
		require.NoError(t, e.Leave())
	})
}

// The znode that the heartbeat checks may be deleted. Then its hold ends, and the next heartbeat checks another.
func TestHeartbeatMissesOurZnode(t *testing.T) {
	const timeout = 6 * time.Second
	for name, upset := range map[string]func(srv *fixture.Ensemble, s *session.Session, e *session.Entry){
		"":                       func(*fixture.Ensemble, *session.Session, *session.Entry) {},
		"after a new connection": func(srv *fixture.Ensemble, _ *session.Session, _ *session.Entry) { srv.Disconnect() },
		"after another lost event": func(srv *fixture.Ensemble, s *session.Session, e *session.Entry) {
			srv.DropEvent(1, fixture.SessionID(s))
			srv.Put(e.Path(), []byte("new"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for phase := range 6 {
				testkit.Bubble(t, func(t *testing.T) {
					srv := fixture.NewEnsemble(t)
					s := fixture.Connect(t, srv.Config(timeout))
					e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
					upset(srv, s, e)
					bubble.Pass(2*timeout + time.Duration(phase)*timeout/12 + 10*time.Millisecond)
					srv.DropEvent(1, fixture.SessionID(s)) // as if the server lost the watch
					srv.Delete(e.Path())
					start := time.Now()
					at, cause := bubble.Ended(t, e)
					require.ErrorIs(t, cause, zkutil.ErrNodeDeleted)
					require.LessOrEqual(t, at.Sub(start), timeout/6+20*time.Millisecond)
					require.ErrorIs(t, e.Leave(), zkutil.ErrNodeDeleted)
				})
			}
		})
	}
}

// A refusal without a result for each check is that of a heartbeat's only znode.
func TestHeartbeatRefusedAsAWhole(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		start := time.Now()
		srv.Once(zktest.OpMulti, zktest.Fault{Refusal: zktest.RefuseNoNode})
		at, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrNodeDeleted)
		require.Equal(t, time.Second, at.Sub(start))
		require.ErrorIs(t, e.Leave(), zkutil.ErrNodeDeleted)
	})
}
