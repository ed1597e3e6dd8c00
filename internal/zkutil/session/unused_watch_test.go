package session_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
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

// Observers of queues that do not exist, that are empty, and that have a leader, leave no watch behind, and nothing for the session to
// do.
func TestObserversLeaveNoWatch(t *testing.T) {
	const timeout, many = 6 * time.Second, 300
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		leader, s := fixture.TwoClients(t, srv, timeout)
		srv.Put("/empty", nil)
		e := bubble.Acquire(t, fixture.MutexOn(leader, "/led").Acquire)
		dirs := []string{"/empty", "/led"}
		for i := range many {
			dirs = append(dirs, "/missing"+strconv.Itoa(i))
		}
		var stops []func()
		for _, dir := range dirs {
			leaders, stop := observe(t, fixture.MutexOn(s, dir).Queue)
			<-leaders
			stops = append(stops, stop)
		}
		require.Equal(t, len(dirs), watchesOf(t, srv, s))
		bubble.Pass(10 * timeout)
		require.Equal(t, len(dirs), watchesOf(t, srv, s), "while they are observed")
		for _, stop := range stops {
			stop()
		}
		bubble.Pass(3 * timeout)
		require.Zero(t, watchesOf(t, srv, s))
		require.Zero(t, s.Tables().Watches)
		id, requests := fixture.SessionID(s), 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Session == id {
				requests++
			}
			return zktest.Fault{}
		})
		bubble.Pass(10 * timeout)
		require.Zero(t, requests, "the session is idle")
		require.NoError(t, e.Leave())
	})
}

// Attempts that time out leave no watch on the holders that they waited for. Those that soon try again share one.
func TestTimedOutAttemptsLeaveNoWatch(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, s := fixture.TwoClients(t, srv, timeout)
		for i := range 20 {
			dir := "/m" + strconv.Itoa(i)
			bubble.Acquire(t, fixture.MutexOn(holder, dir).Acquire)
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				_, err := fixture.MutexOn(s, dir).Acquire(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				cancel()
			}
		}
		require.Positive(t, watchesOf(t, srv, s))
		bubble.Pass(3 * timeout)
		require.Zero(t, watchesOf(t, srv, s))
		require.Len(t, srv.Log.Requests(zktest.OpRemoveWatches), 20)
	})
}

// A waiter that gives up leaves no watch on the znode ahead, although it asked for that watch twice.
func TestWaiterThatAskedTwiceLeavesNoWatch(t *testing.T) {
	const timeout = 6 * time.Second
	for name, fault := range map[string]struct{ before, after func(srv *fixture.Ensemble) }{
		"because its own znode changed": {
			before: func(*fixture.Ensemble) {},
			after:  func(srv *fixture.Ensemble) { srv.Put(bubble.Queue(srv, "/m")[2], []byte("new")) },
		},
		"because the connection changed between the list and the watch": {
			before: func(srv *fixture.Ensemble) { srv.Once(zktest.OpGetData, zktest.Fault{Lost: zktest.RequestLost}) },
			after:  func(*fixture.Ensemble) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				holder, s := fixture.TwoClients(t, srv, timeout)
				bubble.Acquire(t, fixture.MutexOn(holder, "/m").Acquire)
				bubble.Start(t.Context(), fixture.MutexOn(holder, "/m").Acquire)
				fixture.Settle()
				fault.before(srv)
				ctx, cancel := context.WithCancel(t.Context())
				bubble.Start(ctx, fixture.MutexOn(s, "/m").Acquire)
				fixture.Settle()
				fault.after(srv)
				bubble.Pass(10 * time.Millisecond)
				require.Equal(t, 2, watchesOf(t, srv, s), "on the znode ahead, and on the own")
				cancel()
				bubble.Pass(3 * timeout)
				require.Zero(t, watchesOf(t, srv, s))
			})
		})
	}
}

// A caller that asks for a watch while the server removes it is notified of the next change all the same.
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
			bubble.Eventually(t, 3*timeout, func() bool { return len(srv.Log.Requests(zktest.OpRemoveWatches)) > 0 })
			bubble.Pass(after)
			arrival, err = s.WatchArrival(t.Context(), "/m")
			require.NoError(t, err)
			_, data, err = s.ReadAndWatch(t.Context(), "/m")
			require.NoError(t, err)
			srv.Put("/m/a", nil)
			srv.Put("/m", []byte("new"))
			bubble.Pass(10 * time.Millisecond)
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
		_, w, err := znodes.ReadAndWatch(t.Context(), s, "/limit")
		require.NoError(t, err)
		s.ReleaseWatch(w)
		bubble.Pass(10 * timeout)
		srv.Put("/limit", []byte("new"))
		bubble.Pass(time.Second)
		require.Len(t, events, 1)
		require.Empty(t, srv.Log.Requests(zktest.OpRemoveWatches))
	})
}

// A watch of the user that is set while ours is removed costs a connection, as the user may notice, and loses no event.
func TestWatchOfTheUserBesideARemoval(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(timeout))
		srv.Put("/limit", []byte("old"))
		_, w, err := znodes.ReadAndWatch(t.Context(), s, "/limit")
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
		bubble.Eventually(t, 3*timeout, func() bool { return len(srv.Log.Requests(zktest.OpRemoveWatches)) > 0 })
		_, _, events, err := conn.GetW("/limit") // here behind the removal, which the client can't know
		isAnswered := err == nil                 // the answers to both come at the same instant
		if !isAnswered {
			require.ErrorIs(t, err, zk.ErrConnectionClosed)
			_, _, events, err = conn.GetW("/limit")
			require.NoError(t, err)
		}
		bubble.Pass(timeout)
		require.Len(t, srv.Log.Requests(zktest.OpConnect), 2)
		if isAnswered {
			require.Len(t, srv.Log.Requests(zktest.OpSetWatches), 1)
		}
		srv.Put("/limit", []byte("new"))
		bubble.Pass(time.Second)
		require.Len(t, events, 1)
	})
}

// A removal without an answer, because the server hangs or the connection is slow, says nothing about what the server knows. Later
// watches are removed all the same.
func TestWatchIsRemovedAfterSilences(t *testing.T) {
	const timeout, silences = 6 * time.Second, 10
	for _, trouble := range []zktest.Fault{{Lost: zktest.NoAnswer}, {Lost: zktest.RequestLost, Delay: 1500 * time.Millisecond}} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(timeout, srv.Addrs()[0]))
			srv.Put("/limit", nil)
			use := func() {
				_, w, err := znodes.ReadAndWatch(t.Context(), s, "/limit")
				require.NoError(t, err)
				s.ReleaseWatch(w)
				bubble.Pass(3 * timeout)
			}
			heal := srv.OnRequest(func(r zktest.Request) zktest.Fault {
				if r.Op == zktest.OpRemoveWatches {
					return trouble
				}
				return zktest.Fault{}
			})
			for range silences {
				use()
			}
			heal()
			use()
			require.Zero(t, watchesOf(t, srv, s))
			require.Len(t, srv.Log.Requests(zktest.OpRemoveWatches), silences+1)
		})
	}
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
					e = bubble.Acquire(t, fixture.MutexOn(s, "/held").Acquire)
				}
				for i := range 5 {
					_, stop := observe(t, fixture.MutexOn(s, "/m"+strconv.Itoa(i)).Queue)
					bubble.Pass(time.Second)
					stop()
					bubble.Pass(5 * timeout)
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

// A directory that is created and deleted between the requests costs a bounded number of them.
func TestArrivalInADirectoryThatIsCreatedAndDeleted(t *testing.T) {
	for flips, isSeen := range map[int]bool{1: true, 2: true, 3: false} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(6*time.Second))
			left := flips
			srv.Inject(func(r zktest.Request) zktest.Fault {
				switch {
				case r.Op == zktest.OpExists && left > 0:
					left--
					srv.Seed(zktest.Znode{Path: "/d"})
				case r.Op == zktest.OpGetChildren2 && left > 0:
					srv.Delete("/d")
				}
				return zktest.Fault{}
			})
			began := time.Now()
			w, err := s.WatchArrival(t.Context(), "/d")
			require.Equal(t, began, time.Now())
			if !isSeen {
				require.ErrorIs(t, err, zkutil.ErrStale)
				return
			}
			require.NoError(t, err)
			srv.Put("/d/a", nil)
			synctest.Wait()
			require.True(t, w.HasFired())
			s.ReleaseWatch(w)
		})
	}
}

// A call that gives up a watch before the answer leaves nothing, whether the watch is its own or another call has it already.
func TestAbandonedWatchIsUnused(t *testing.T) {
	for name, isShared := range map[string]bool{"own": false, "shared": true} {
		testkit.Bubble(t, func(t *testing.T) {
			const timeout = 6 * time.Second
			srv := fixture.NewEnsemble(t)
			srv.Put("/a", nil)
			s := fixture.Connect(t, srv.Config(timeout))
			var first *session.Watch
			if isShared {
				var err error
				first, err = s.Watch(t.Context(), "/a")
				require.NoError(t, err)
			}
			pending, err := s.StartWatch(t.Context(), "/a")
			require.NoError(t, err)
			pending.Abandon()
			s.ReleaseWatch(first)
			bubble.Pass(3 * timeout)
			require.Zero(t, s.Tables().Watches, name)
			require.Zero(t, watchesOf(t, srv, s), name)
		})
	}
}

// A removal that the server executes behind the request for another watch on the same znode costs no event. The server has one table for both
// watches.
func TestWatchThatIsRemovedWithAnotherFires(t *testing.T) {
	const timeout = 6 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(timeout))
		arrival, err := s.WatchArrival(t.Context(), "/m")
		require.NoError(t, err)
		s.ReleaseWatch(arrival)
		bubble.Pass(timeout - timeout/24) // it is removed soon
		created := make(chan struct{})
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetData {
				<-created
			}
			return zktest.Fault{}
		})
		var data *session.Watch
		read := make(chan error, 1)
		go func() {
			_, w, err := s.ReadAndWatch(t.Context(), "/m")
			data = w
			read <- err
		}()
		bubble.Pass(timeout / 6) // the removal is on its way
		require.False(t, arrival.HasFired())
		srv.Put("/m", nil)
		close(created)
		require.NoError(t, <-read)
		bubble.Pass(time.Second)
		require.Len(t, srv.Log.Requests(zktest.OpRemoveWatches), 1)
		srv.Put("/m", []byte("new"))
		bubble.Pass(10 * time.Millisecond)
		require.True(t, data.HasFired())
		s.ReleaseWatch(data)
	})
}
