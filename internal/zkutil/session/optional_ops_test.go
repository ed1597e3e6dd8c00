package session_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// withoutOps runs a test with servers that lack operations of ZooKeeper 3.5, for each way in which servers treat those.
func withoutOps(t *testing.T, suspendEnds bool, test func(t *testing.T, srv *fixture.Ensemble, s *session.Session)) {
	t.Helper()
	for name, how := range map[string]zktest.UnknownOp{
		"unimplemented": zktest.UnknownUnimplemented, "bad arguments": zktest.UnknownBadArguments, "hang-up": zktest.UnknownHangUp,
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t, zktest.WithUnknownOps(how,
					zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpRemoveWatches, zktest.OpMultiRead))
				cfg := srv.Config(30 * time.Second)
				cfg.SuspendEnds = suspendEnds
				test(t, srv, fixture.Connect(t, cfg))
			})
		})
	}
}

// A server that lacks operations serves locks. The client finds out at its first lock, and then avoids requests that end the
// connection.
func TestLocksOnServersWithoutNewOperations(t *testing.T) {
	withoutOps(t, false, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		e, err := fixture.MutexOn(s, "/a/b").Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, e.Leave())
		connects := len(srv.Log.Requests(zktest.OpConnect))
		for i := range 20 {
			e := bubble.Acquire(t, fixture.MutexOn(s, "/a/c"+strconv.Itoa(i)).Acquire)
			require.Len(t, srv.Children("/a/c"+strconv.Itoa(i)), 1)
			require.NoError(t, e.Leave())
		}
		require.Len(t, srv.Log.Requests(zktest.OpConnect), connects)
		require.LessOrEqual(t, len(srv.Log.Requests(zktest.OpCreate2)), 2)
		require.LessOrEqual(t, len(srv.Log.Requests(zktest.OpCreateContainer)), 2)
		_, stat, isThere := srv.Get("/a/b")
		require.True(t, isThere && stat.EphemeralOwner == 0, "a persistent znode")
	})
}

// Where holds end with the connection, nothing that a client asks for ends the connection while something is held.
func TestServersWithoutNewOperationsCostNoLease(t *testing.T) {
	for _, dir := range []string{"/there", "/a/b"} { // the parent exists, or is made
		withoutOps(t, true, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
			srv.Put("/there", nil)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			first, err := fixture.MutexOn(s, dir).Acquire(ctx)
			require.NoError(t, err)
			other := bubble.Acquire(t, fixture.MutexOn(s, "/c/d").Acquire)
			bubble.Pass(time.Minute)
			require.NoError(t, first.Context().Err())
			require.NoError(t, other.Context().Err())
			require.NoError(t, first.Leave())
			require.NoError(t, other.Leave())
		})
	}
}

// Two consecutive lost answers show that a server hangs up at an operation. One execution shows that it does not, for all later
// losses.
func TestLostAnswersToKnownOperationsAreOrdinaryLosses(t *testing.T) {
	for _, lost := range []zktest.Loss{zktest.ReplyLost, zktest.RequestLost} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(30*time.Second))
			srv.Put("/m", nil)
			if lost == zktest.RequestLost {
				require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
			}
			for range 3 {
				srv.Once(zktest.OpCreate2, zktest.Fault{Lost: lost})
				require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
			}
			require.Empty(t, srv.Log.Requests(zktest.OpCreate))
		})
	}
}

// One lost answer says nothing.
func TestOneLostAnswerDoesNotDenyAnOperation(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.DropRequest(zktest.OpCreate2, 1)
		srv.DropRequest(zktest.OpCreateContainer, 1)
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
		require.Empty(t, srv.Log.Requests(zktest.OpCreate))
	})
}

// A path that no server takes is refused as such, and says nothing of the operation.
func TestBadPathDoesNotDenyAnOperation(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Put("/m", nil)
		_, err := s.CreateProtected(t.Context(), "/m", "\x01-", nil)
		require.ErrorIs(t, err, zk.ErrBadArguments)
		require.True(t, zkutil.IsRefused(err))
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
		require.Len(t, srv.Log.Requests(zktest.OpCreate), 1, "of the bad path")
	})
}

// A request that was made before the connection, and waited at the gate, is adapted to the server that it is sent to.
func TestOptionalOperationsOfTheServerBehindTheGate(t *testing.T) {
	t.Run("that resumes no session", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
			srv.Stop()
			s, err := session.Open(srv.Config(30 * time.Second))
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
			bubble.Pass(time.Second)
			srv.Restart()
			got := <-turn
			require.NoError(t, got.Err)
			require.NoError(t, got.Lease.Leave())
			require.Empty(t, srv.Log.Requests(zktest.OpCreate2))
			require.Len(t, srv.Log.Requests(zktest.OpConnect), 1)
		})
	})
	t.Run("that lacks them", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			defer srv.OnRequest(func(r zktest.Request) zktest.Fault { // one server is older
				return fixture.Cut(r.Server == srv.B && r.Op == zktest.OpCreate2, zktest.RequestLost)
			})()
			srv.Stop(srv.A)
			s := fixture.Connect(t, srv.Config(30*time.Second, srv.A, srv.B))
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave()) // the client knows what B lacks
			srv.Restart(srv.A)
			srv.Stop(srv.B)
			bubble.Pass(time.Minute)
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
			srv.Stop(srv.A)
			bubble.Pass(time.Second)
			turn := bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
			bubble.Pass(time.Second)
			start := time.Now()
			srv.Restart(srv.B)
			got := <-turn
			require.NoError(t, got.Err)
			require.NoError(t, got.Lease.Leave())
			require.Empty(t, fixture.Times(srv.Log.Requests(zktest.OpCreate2), start))
		})
	})
}
