package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The answer to a create is lost, and for a second the search for its znode is forbidden. The search continues until it
// succeeds, and the znode is deleted, because it would block all contenders for the life of the client.
func TestRefusedSearchIsRepeated(t *testing.T) {
	for name, refused := range map[string]zktest.Op{"list": zktest.OpGetChildren2, "sync": zktest.OpSync} {
		for _, isAbandoned := range []bool{false, true} {
			withSession(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
				t.Helper()
				srv.Put("/m", nil)
				isCreated := false
				allow := srv.OnRequest(func(r zktest.Request) zktest.Fault {
					switch {
					case (r.Op == zktest.OpCreate2 || r.Op == zktest.OpCreate) && !isCreated:
						isCreated = true
						return zktest.Fault{Lost: zktest.ReplyLost, Delay: 100 * time.Millisecond}
					case r.Op == refused && isCreated:
						return zktest.Fault{Refusal: zktest.RefuseNoAuth}
					}
					return zktest.Fault{}
				})
				ctx, want := t.Context(), zk.ErrNoAuth
				if isAbandoned {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
					defer cancel()
					want = context.DeadlineExceeded
				}
				_, err := fixture.MutexOn(s, "/m").Acquire(ctx)
				require.ErrorIs(t, err, want, name)
				bubble.Pass(time.Second)
				require.Len(t, srv.Children("/m"), 1, "the create was executed")
				require.NotZero(t, s.Budget().Usage().Used)
				allow()
				bubble.Pass(30 * time.Second)
				require.Empty(t, srv.Children("/m"))
				require.Equal(t, budget.Usage{}, s.Budget().Usage())
			})
		}
	}
}

// A refused search ends with the session of its create, whose znode the servers deleted.
func TestRefusedSearchEndsWithItsSession(t *testing.T) {
	withSession(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		srv.Put("/m", nil)
		isCreated := false
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			switch {
			case (r.Op == zktest.OpCreate2 || r.Op == zktest.OpCreate) && !isCreated:
				isCreated = true
				return zktest.Fault{Lost: zktest.ReplyLost}
			case r.Op == zktest.OpGetChildren2 && isCreated:
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		_, err := fixture.MutexOn(s, "/m").Acquire(t.Context())
		require.ErrorIs(t, err, zk.ErrNoAuth)
		srv.ExpireAll()
		bubble.Pass(2 * time.Minute)
		require.True(t, s.IsConnected())
		require.Equal(t, budget.Usage{}, s.Budget().Usage())
		searches := len(srv.Log.Requests(zktest.OpSync))
		bubble.Pass(10 * time.Minute)
		require.Len(t, srv.Log.Requests(zktest.OpSync), searches)
	})
}

// While a permission is missing, the search pauses for up to half a minute between its attempts.
func TestRefusedSearchIsRare(t *testing.T) {
	withSession(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		srv.Put("/m", nil)
		srv.DropReply(zktest.OpAny, 1)
		refuse := srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpSync {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		_, err := fixture.MutexOn(s, "/m").Acquire(t.Context())
		require.True(t, zkutil.IsRefused(err), "%v", err)
		bubble.Pass(5 * time.Minute)
		before := len(srv.Log.Requests(zktest.OpSync))
		bubble.Pass(10 * time.Minute)
		searches := len(srv.Log.Requests(zktest.OpSync)) - before
		require.GreaterOrEqual(t, searches, 15)
		require.LessOrEqual(t, searches, 60)
		refuse()
		bubble.Pass(time.Minute)
		require.Empty(t, srv.Children("/m"))
	})
}
