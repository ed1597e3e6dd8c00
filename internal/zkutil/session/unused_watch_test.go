package session_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func watchesOf(t *testing.T, srv *fixture.Ensemble, s *session.Session) int {
	t.Helper()
	at, isAlive := srv.Session(fixture.SessionID(s))
	require.True(t, isAlive)
	return at.Watches
}

// observe observes the first of a queue until it is stopped.
func observe(t *testing.T, q *queue.Queue) (leaders <-chan queue.Participant, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	return queue.Observe(ctx, q, func(p queue.Participant) queue.Participant { return p }), cancel
}

// Observers of queues that nobody has made, that are empty, and that somebody leads, leave no watch behind, and nothing for the session
// to do.
func TestObserversLeaveNoWatch(t *testing.T) {
	const timeout, many = 6 * time.Second, 300
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		leader, s := fixture.TwoClients(t, srv, timeout)
		srv.Put("/empty", nil)
		e := fixture.Acquire(t, fixture.MutexOn(leader, "/led"))
		dirs := []string{"/empty", "/led"}
		for i := range many {
			dirs = append(dirs, "/missing"+strconv.Itoa(i))
		}
		var stops []func()
		for _, dir := range dirs {
			leaders, stop := observe(t, fixture.MutexOn(s, dir))
			<-leaders
			stops = append(stops, stop)
		}
		require.Equal(t, len(dirs), watchesOf(t, srv, s))
		fixture.Pass(10 * timeout)
		require.Equal(t, len(dirs), watchesOf(t, srv, s), "while they are observed")
		for _, stop := range stops {
			stop()
		}
		fixture.Pass(3 * timeout)
		require.Zero(t, watchesOf(t, srv, s))
		require.Zero(t, s.Tables().Watches)
		id, requests := fixture.SessionID(s), 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Session == id {
				requests++
			}
			return zktest.Fault{}
		})
		fixture.Pass(10 * timeout)
		require.Zero(t, requests, "the session is idle")
		require.NoError(t, e.Leave())
	})
}

// Attempts that time out leave no watch on the holders whom they have waited for. Those that come again soon share one.
func TestTimedOutAttemptsLeaveNoWatch(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, s := fixture.TwoClients(t, srv, timeout)
		for i := range 20 {
			dir := "/m" + strconv.Itoa(i)
			fixture.Acquire(t, fixture.MutexOn(holder, dir))
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				_, err := fixture.MutexOn(s, dir).Acquire(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				cancel()
			}
		}
		require.Positive(t, watchesOf(t, srv, s))
		fixture.Pass(3 * timeout)
		require.Zero(t, watchesOf(t, srv, s))
		require.Len(t, srv.Log.Requests(zktest.OpRemoveWatches), 20)
	})
}

// A caller that asks for a watch while the server removes it is told of the next change all the same.
func TestWatchIsSetAgainWhileItIsRemoved(t *testing.T) {
	const timeout = 6 * time.Second
	for _, after := range []time.Duration{0, 500 * time.Millisecond, 2 * time.Second} { // the removal was sent
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(timeout))
			srv.Put("/m", nil)
			arrival, err := s.WatchArrival(t.Context(), "/m")
			require.NoError(t, err)
			_, data, err := s.ReadAndWatch(t.Context(), "/m")
			require.NoError(t, err)
			s.ReleaseWatch(arrival)
			s.ReleaseWatch(data)
			srv.Delay(zktest.OpRemoveWatches, time.Second)
			fixture.Eventually(t, 3*timeout, func() bool { return len(srv.Log.Requests(zktest.OpRemoveWatches)) > 0 })
			fixture.Pass(after)
			arrival, err = s.WatchArrival(t.Context(), "/m")
			require.NoError(t, err)
			_, data, err = s.ReadAndWatch(t.Context(), "/m")
			require.NoError(t, err)
			srv.Put("/m/a", nil)
			srv.Put("/m", []byte("new"))
			fixture.Pass(10 * time.Millisecond)
			require.True(t, arrival.HasFired())
			require.True(t, data.HasFired())
		})
	}
}

// A watch that the user of zk.Conn has set on the same znode stands on.
func TestWatchOfTheUserIsNotRemoved(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(timeout))
		srv.Put("/limit", []byte("old"))
		_, _, events, err := s.Conn().GetW("/limit")
		require.NoError(t, err)
		_, w, err := s.Persistent().Read(t.Context(), "/limit")
		require.NoError(t, err)
		s.ReleaseWatch(w)
		fixture.Pass(10 * timeout)
		srv.Put("/limit", []byte("new"))
		fixture.Pass(time.Second)
		require.Len(t, events, 1)
		require.Empty(t, srv.Log.Requests(zktest.OpRemoveWatches))
	})
}

// A watch of the user that is set while ours is removed costs a connection, and loses no event.
func TestWatchOfTheUserBesideARemoval(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(timeout))
		srv.Put("/limit", []byte("old"))
		_, w, err := s.Persistent().Read(t.Context(), "/limit")
		require.NoError(t, err)
		s.ReleaseWatch(w)
		conn, isAsked := s.Conn(), false
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpRemoveWatches && !isAsked {
				isAsked = true
				return zktest.Fault{Delay: time.Second}
			}
			return zktest.Fault{}
		})
		fixture.Eventually(t, 3*timeout, func() bool { return len(srv.Log.Requests(zktest.OpRemoveWatches)) > 0 })
		_, _, events, err := conn.GetW("/limit") // here behind the removal: the client can't know
		require.NoError(t, err)
		fixture.Pass(timeout)
		require.Len(t, srv.Log.Requests(zktest.OpConnect), 2)
		require.Len(t, srv.Log.Requests(zktest.OpSetWatches), 1)
		srv.Put("/limit", []byte("new"))
		fixture.Pass(time.Second)
		require.Len(t, events, 1)
	})
}

// Servers that do not know how to remove a watch are asked twice at most, and never at the cost of a hold.
func TestServersThatRemoveNoWatches(t *testing.T) {
	const timeout = 6 * time.Second
	for _, how := range []zktest.UnknownOp{zktest.UnknownUnimplemented, zktest.UnknownBadArguments, zktest.UnknownHangUp} {
		for _, isHolding := range []bool{false, true} {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t, zktest.WithUnknownOps(how, zktest.OpRemoveWatches))
				cfg := srv.Config(timeout)
				cfg.SuspendEnds = true
				s := fixture.Connect(t, cfg)
				var e *session.Entry
				if isHolding {
					e = fixture.Acquire(t, fixture.MutexOn(s, "/held"))
				}
				for i := range 5 {
					_, stop := observe(t, fixture.MutexOn(s, "/m"+strconv.Itoa(i)))
					fixture.Pass(time.Second)
					stop()
					fixture.Pass(5 * timeout)
				}
				require.LessOrEqual(t, len(srv.Log.Requests(zktest.OpRemoveWatches)), 2)
				if isHolding {
					require.NoError(t, e.Context().Err())
					require.NoError(t, e.Leave())
				}
			})
		}
	}
}
