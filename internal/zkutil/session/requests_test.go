package session_test

import (
	"context"
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
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// withNode runs a test with a session, and a znode at /a.
func withNode(t *testing.T, test func(t *testing.T, srv *fixture.Ensemble, s *session.Session)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		srv.Put("/a", []byte("data"))
		test(t, srv, fixture.Connect(t, srv.Config(6*time.Second)))
	})
}

func getRequest(path string) wire.Request { return wire.Request{Op: proto.OpGetData, Path: path} }

func setRequest() wire.Request {
	return wire.Request{Op: proto.OpSetData, Path: "/a", Data: []byte("new"), Version: -1}
}

// Requests that are sent together are executed in their order. A refusal does not stop those behind it.
func TestRequestsSentTogetherKeepTheOrder(t *testing.T) {
	withNode(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		errs, err := s.AskTogether(t.Context(), setRequest(), getRequest("/missing"), wire.Request{Op: proto.OpDelete, Path: "/a", Version: 1}, setRequest())
		require.NoError(t, err)
		require.Equal(t, []error{nil, zk.ErrNoNode, nil, zk.ErrNoNode}, errs)
		var ops []zktest.Op
		for _, r := range srv.Log.Requests(zktest.OpSetData, zktest.OpGetData, zktest.OpDelete) {
			ops = append(ops, r.Op)
		}
		require.Equal(t, []zktest.Op{zktest.OpSetData, zktest.OpGetData, zktest.OpDelete, zktest.OpSetData}, ops)
	})
}

// The answer to each kind of request has what that request asks for.
func TestAnswersOfEachRequest(t *testing.T) {
	withNode(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		srv.Put("/a/child", nil)
		a, err := s.Request(t.Context(), getRequest("/a"))
		require.NoError(t, err)
		require.Equal(t, "data", string(a.Data))
		require.EqualValues(t, 1, a.Stat.NumChildren)
		a, err = s.Request(t.Context(), setRequest())
		require.NoError(t, err)
		require.EqualValues(t, 1, a.Stat.Version)
		a, err = s.Request(t.Context(), wire.Request{Op: proto.OpGetChildren2, Path: "/a"})
		require.NoError(t, err)
		require.Equal(t, []string{"child"}, a.Children)
		a, err = s.Request(t.Context(), wire.Request{Op: proto.OpGetChildren2, Path: "/a/child"})
		require.NoError(t, err)
		require.Equal(t, []string{}, a.Children)
		a, err = s.Request(t.Context(), wire.Request{Op: proto.OpSync, Path: "/a"})
		require.NoError(t, err)
		require.Equal(t, "/a", a.Path)
		a, err = s.Request(t.Context(), wire.Request{Op: proto.OpCreate, Path: "/a/n-", Flags: zk.FlagEphemeralSequential, ACL: s.Config().ACL})
		require.NoError(t, err)
		require.Equal(t, "/a/n-0000000001", a.Path)
		_, err = s.Request(t.Context(), wire.Request{Op: proto.OpMulti, Checks: []string{"/a", "/missing"}})
		require.ErrorIs(t, err, zk.ErrNoNode)
	})
}

// A request for one connection is not sent over a later one.
func TestRequestOnALostConnectionIsNotSent(t *testing.T) {
	withNode(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		for range 2 {
			now := s.Snapshot()
			_, err := s.RequestOn(t.Context(), now.Epoch, setRequest())
			require.NoError(t, err)
			srv.Disconnect(fixture.SessionID(s))
			bubble.Pass(time.Second)
			log := srv.Observe()
			_, err = s.RequestOn(t.Context(), now.Epoch, setRequest())
			require.ErrorIs(t, err, zkutil.ErrStale)
			require.Empty(t, log.Requests(zktest.OpSetData))
		}
	})
}

// The end of a context ends the wait at once, and Close does. The connection serves on.
func TestRequestWaitsNoLongerThanTheContext(t *testing.T) {
	withNode(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		srv.Once(zktest.OpGetData, zktest.Fault{Delay: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := s.Request(ctx, getRequest("/a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 100*time.Millisecond, time.Since(start))
		_, err = s.Request(t.Context(), getRequest("/a"))
		require.NoError(t, err)
	})
}

func TestCloseEndsTheWaitOfARequest(t *testing.T) {
	withNode(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		srv.Once(zktest.OpGetData, zktest.Fault{Delay: time.Second})
		type ended struct {
			err error
			at  time.Time
		}
		done := make(chan ended, 1)
		go func() {
			_, err := s.Request(t.Context(), getRequest("/a"))
			done <- ended{err, time.Now()}
		}()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, s.Close())
		got := <-done
		require.ErrorIs(t, got.err, zkutil.ErrClosed)
		require.Equal(t, start, got.at)
		_, err := s.Request(t.Context(), getRequest("/a"))
		require.ErrorIs(t, err, zkutil.ErrClosed)
	})
}

// A create that its caller gave up is undone once it was executed.
func TestAbandonedCreateIsUndone(t *testing.T) {
	withNode(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpCreate2} {
			srv.Once(op, zktest.Fault{Delay: time.Second})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := s.CreateProtected(ctx, "/a", "x-", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		bubble.Pass(3 * time.Second)
		require.Len(t, srv.Log.Requests(zktest.OpCreate, zktest.OpCreate2), 1)
		require.Empty(t, srv.Children("/a"))
	})
}

// The answer is lost with the connection. The server may have executed the request, and none of those behind it is
// reported as refused.
func TestLostAnswersOfRequests(t *testing.T) {
	withNode(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		srv.Once(zktest.OpSetData, zktest.Fault{Lost: zktest.ReplyLost})
		errs, err := s.AskTogether(t.Context(), setRequest(), getRequest("/a"))
		require.NoError(t, err)
		require.ErrorIs(t, errs[0], zk.ErrConnectionClosed)
		require.True(t, zkutil.IsUnanswered(errs[0]))
		require.True(t, zkutil.IsTransient(errs[1]))
		synctest.Wait() // zk.Conn noticed
		a, err := s.Request(t.Context(), getRequest("/a"))
		require.NoError(t, err, "on the next connection")
		require.Equal(t, "new", string(a.Data))
	})
}

// A server answers that the session moved to another one.
func TestRequestAfterTheSessionHasMoved(t *testing.T) {
	withNode(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		srv.Once(zktest.OpSetData, zktest.Fault{Refusal: zktest.RefuseSessionMoved})
		_, err := s.Request(t.Context(), setRequest())
		require.ErrorIs(t, err, zk.ErrSessionMoved)
		require.True(t, zkutil.IsTransient(err))
		require.False(t, zkutil.IsUnanswered(err))
		_, err = s.Request(t.Context(), setRequest())
		require.NoError(t, err)
	})
}

// A watch fires with the event, and the next one is a new one. A watch that was refused is not kept.
func TestWatchesOfRequests(t *testing.T) {
	withNode(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		w, err := s.Watch(t.Context(), "/a")
		require.NoError(t, err)
		require.Equal(t, "data", string(w.Node().Data))
		shared, err := s.Watch(t.Context(), "/a")
		require.NoError(t, err)
		require.Same(t, w, shared)
		srv.Put("/a", []byte("other"))
		bubble.Pass(100 * time.Millisecond)
		require.True(t, w.HasFired())
		require.Equal(t, zk.EventNodeDataChanged, w.Event())
		next, err := s.Watch(t.Context(), "/a")
		require.NoError(t, err)
		require.Equal(t, "other", string(next.Node().Data))
		srv.Delete("/a")
		bubble.Pass(100 * time.Millisecond)
		require.True(t, next.IsGone())

		_, err = s.Watch(t.Context(), "/a")
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.Zero(t, s.Tables().Watches)
		srv.Put("/b", nil)
		srv.Once(zktest.OpGetData, zktest.Fault{Refusal: zktest.RefuseNoAuth})
		_, err = s.Watch(t.Context(), "/b")
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.Zero(t, s.Tables().Watches)
	})
}

// All watches fire when the connection is replaced, because they stood at the server of the last one. A watch
// that is set after that stands.
func TestWatchesFireOnAReconnect(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		srv.Put("/a", nil)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		w, err := s.Watch(t.Context(), "/a")
		require.NoError(t, err)
		arrival, err := s.WatchArrival(t.Context(), "/a")
		require.NoError(t, err)
		srv.Disconnect(fixture.SessionID(s))
		require.NoError(t, s.AwaitConnected(t.Context()))
		bubble.Pass(time.Second)
		require.True(t, w.HasFired())
		require.Equal(t, zk.EventNotWatching, w.Event())
		require.False(t, w.IsGone())
		require.True(t, arrival.HasFired())
		require.Zero(t, s.Tables().Watches)
		w, err = s.Watch(t.Context(), "/a")
		require.NoError(t, err)
		bubble.Pass(10 * time.Second)
		require.False(t, w.HasFired())
		srv.Delete("/a")
		synctest.Wait()
		require.True(t, w.IsGone())
	})
}

// A watch of the user's on zk.Conn survives a reconnect, although the engine has one on the same znode, or had. Changes
// meanwhile are reported.
func TestUserWatchesSurviveAReconnect(t *testing.T) {
	for _, isShared := range []bool{false, true} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			for _, path := range []string{"/a", "/b", "/c"} {
				srv.Put(path, nil)
			}
			s := fixture.Connect(t, srv.Config(6*time.Second))
			events := map[string]<-chan zk.Event{}
			for _, path := range []string{"/a", "/b", "/c"} {
				if isShared {
					_, err := s.Watch(t.Context(), path)
					require.NoError(t, err)
				}
				_, _, event, err := s.Conn().GetW(path)
				require.NoError(t, err)
				events[path] = event
			}
			// Own answers are later than any that zk.Conn saw.
			require.NoError(t, s.Write(t.Context(), "/c", []byte("x")))
			require.Equal(t, zk.EventNodeDataChanged, (<-events["/c"]).Type)
			srv.Stop(srv.A)
			synctest.Wait()
			srv.Put("/a", []byte("changed"))
			srv.Restart(srv.A)
			bubble.Eventually(t, 10*time.Second, func() bool { return s.State() == connstate.Connected })
			bubble.Pass(time.Second)
			require.Len(t, events["/a"], 1, "what happened meanwhile")
			require.Empty(t, events["/b"], "nothing happened")
			if isShared {
				_, err := s.Watch(t.Context(), "/b")
				require.NoError(t, err)
			}
			srv.Delete("/b")
			synctest.Wait()
			require.Equal(t, zk.EventNodeDeleted, (<-events["/b"]).Type)
		})
	}
}
