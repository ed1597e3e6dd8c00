package session_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A server that accepts the session and then cuts, as a proxy or a frame limit may
// do, is not dialled without a pause.
func TestNoReconnectStorm(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.Put("/node", nil)
		_, err := s.Watch(t.Context(), "/node")
		require.NoError(t, err)
		const limit = 500
		var dials atomic.Int64
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			return fixture.Cut(r.Op == zktest.OpSetWatches && dials.Add(1) < limit, zktest.ReplyLost)
		})
		srv.Disconnect()
		bubble.Pass(10 * time.Second)
		require.Less(t, dials.Load(), int64(limit), "dials in ten seconds")
	})
}

// cutAfterHandshakes ends each connection of a session soon after its handshake.
func cutAfterHandshakes(srv *fixture.Ensemble, id int64, lives time.Duration) (restore func()) {
	restore = srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == zktest.OpConnect && r.Session == id {
			time.AfterFunc(lives, func() { srv.Disconnect(id) })
		}
		return zktest.Fault{}
	})
	srv.Disconnect(id)
	return restore
}

// While each connection ends right after the handshake, a client that holds nothing connects more and more rarely, and is back soon after
// the end of that. A waiter keeps its place, and connects more often, as any client in use.
func TestReconnectsBecomeRareWhileConnectionsAreCut(t *testing.T) {
	for waits, interval := range map[bool]time.Duration{false: 24 * time.Second / 6, true: 24 * time.Second / 6 / dial.HurryDivisor} {
		testkit.Bubble(t, func(t *testing.T) {
			const timeout = 24 * time.Second
			srv := fixture.NewEnsemble(t)
			holder, s := fixture.TwoClients(t, srv, timeout)
			held := bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
			if waits {
				bubble.Start(t.Context(), fixture.MutexOn(s, "/m").Acquire)
				fixture.Settle()
			}
			restore := cutAfterHandshakes(srv, fixture.SessionID(s), 7*time.Millisecond)
			bubble.Pass(time.Minute)
			before := srv.Log.Count(zktest.OpConnect)
			const length = 15 * time.Minute
			bubble.Pass(length)
			require.Less(t, srv.Log.Count(zktest.OpConnect)-before, int(length/interval)*3/2, "an interval is shorter by a quarter on average")
			restore()
			bubble.Pass(timeout / 6)
			require.True(t, s.IsConnected())
			require.NoError(t, held.Leave())
		})
	}
}

// A hold survives connections that are cut again and again, if they last long enough for a proof, or if the last of them ends
// in time.
func TestHoldOutlivesCutConnections(t *testing.T) {
	for _, timeout := range []time.Duration{4 * time.Second, 30 * time.Second, 3 * time.Minute} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(timeout))
			held := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			fixture.Settle()
			restore := cutAfterHandshakes(srv, fixture.SessionID(s), 80*time.Millisecond)
			bubble.Pass(2 * time.Minute)
			restore()
			bubble.Pass(timeout)
			require.NoError(t, context.Cause(held.Context()))
			for range 3 {
				restore = cutAfterHandshakes(srv, fixture.SessionID(s), 0)
				bubble.Pass(timeout/2 - timeout/20) // the latest proof is T/6 old at most
				restore()
				bubble.Pass(timeout)
				require.NoError(t, context.Cause(held.Context()))
			}
			require.NoError(t, held.Leave())
		})
	}
}

// Ten thousand finished attempts leave one watch on the znode ahead.
func TestWatchesAreShared(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s, other := fixture.Connect(t, srv.Config(time.Hour)), fixture.Connect(t, srv.Config(time.Hour))
		e := bubble.Acquire(t, fixture.MutexOn(other, "/m").Acquire)
		for range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := fixture.MutexOn(s, "/m").Acquire(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		bubble.Pass(time.Second)
		require.Equal(t, session.Tables{Watches: 1}, s.Tables())
		watched := 0
		for _, r := range srv.Log.Requests(zktest.OpGetData) {
			if r.Session == fixture.SessionID(s) && r.Path == e.Path() {
				watched++
			}
		}
		require.Equal(t, 1, watched)
		require.NoError(t, e.Leave())
	})
}
