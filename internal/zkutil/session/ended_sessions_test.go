package session_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Sessions that end at an operation, one after the other, do not make it look unknown to the server.
func TestEndedSessionsAreNotBlamedOnAnOperation(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		m := f.Mutex(f.Client())
		var ended atomic.Int32
		f.Srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpGetChildren2 && ended.Add(1) <= 20 {
				f.Srv.Expire(r.Session)
			}
			return zktest.Fault{}
		})
		lease := bubble.Acquire(f.T, m.Acquire)
		require.Greater(f, ended.Load(), int32(20))
		require.NoError(f, lease.Release())
	})
}

// The server refuses the deletion of a znode, and then its session is over. No request for it is sent any more, and the
// new session is idle.
func TestRefusedDeleteEndsWithTheSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		cfg.OperationTimeout = time.Second
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete && r.Path == e.Path() {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		require.ErrorIs(t, e.Leave(), zk.ErrNoAuth)
		old := fixture.SessionID(s)
		asked := len(srv.Log.Requests(zktest.OpDelete))
		bubble.Pass(time.Minute)
		require.Greater(t, len(srv.Log.Requests(zktest.OpDelete)), asked, "it goes on while the session lives")
		srv.Expire(old)
		bubble.Eventually(t, 10*time.Second, func() bool { return s.State() == connstate.Connected && fixture.SessionID(s) != old })
		bubble.Pass(time.Minute)
		over := time.Now()
		bubble.Pass(10 * time.Minute)
		require.Empty(t, fixture.Times(srv.Log.Requests(zktest.OpDelete, zktest.OpMulti), over))
	})
}

// A handshake that names the session is answered with another one, by servers that took the place of the old. The deletion of the hold's
// znode is refused there, and ends nevertheless, because the znode went with its session.
func TestHandshakeOfAnotherSessionEndsDeletions(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		old, next := fixture.NewEnsemble(t), fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
		for range 50 { // so that the next servers are not behind the old
			next.Put("/filler", nil)
		}
		for range 3 {
			fixture.Connect(t, next.Config(6*time.Second))
		}
		var isReplaced atomic.Bool
		cfg := old.Config(6 * time.Second)
		cfg.Dialer = func(network, address string, timeout time.Duration) (net.Conn, error) {
			if isReplaced.Load() {
				return next.Dial(network, next.A, timeout)
			}
			return old.Dial(network, address, timeout)
		}
		s := fixture.Connect(t, cfg)
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		var refused atomic.Int32
		next.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete && r.Path == e.Path() {
				refused.Add(1)
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		isReplaced.Store(true)
		old.Disconnect()
		_, cause := bubble.Ended(t, e)
		require.ErrorIs(t, cause, zkutil.ErrSessionLost)
		bubble.Pass(10 * time.Minute)
		require.Positive(t, refused.Load())
		require.False(t, s.IsInUse(), "the deletion is repeated")
	})
}
