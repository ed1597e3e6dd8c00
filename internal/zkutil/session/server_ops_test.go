package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// One server may lack an operation that another supports, as during a rolling upgrade, so the client asks each
// server.
func TestWhatOneServerLacksAnotherMayHave(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		srv.Put("/m", nil)
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpCreate2 && r.Server == srv.A {
				return zktest.Fault{Refusal: -8}
			}
			return zktest.Fault{}
		})
		s := fixture.Connect(t, srv.Config(30*time.Second, srv.A, srv.B))
		lock := func(server string) (creates, creates2 int) {
			bubble.Eventually(t, time.Minute, func() bool {
				session, _ := srv.Session(fixture.SessionID(s))
				if session.Server != server {
					srv.Disconnect()
				}
				return session.Server == server && s.IsConnected()
			})
			before, before2 := srv.Log.Count(zktest.OpCreate), srv.Log.Count(zktest.OpCreate2)
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
			return srv.Log.Count(zktest.OpCreate) - before, srv.Log.Count(zktest.OpCreate2) - before2
		}
		for i, want := range [][2]int{{1, 1}, {0, 1}, {1, 0}, {0, 1}} { // on A, which is asked once, on B, and again
			creates, creates2 := lock([]string{srv.A, srv.B}[i%2])
			require.Equal(t, want, [2]int{creates, creates2}, "step %d", i)
		}
	})
}

// A server that hangs up at an operation that it supported before is another server with the same address. That costs a few
// connections.
func TestOperationThatAServerHasForgotten(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			return fixture.Cut(r.Op == zktest.OpCreate2, zktest.RequestLost)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 10 {
			e, err := fixture.MutexOn(s, "/m").Acquire(ctx)
			require.NoError(t, err)
			require.NoError(t, e.Leave())
		}
		require.LessOrEqual(t, len(srv.Log.Requests(zktest.OpConnect)), 7)
	})
}

// A missing operation is remembered for the server that answered, even if the client was connected to another one when the call
// began.
func TestWhatAServerLacksIsRememberedForTheServerAsked(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		srv.Put("/m", nil)
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpCreate2 && r.Server == srv.B {
				return zktest.Fault{Refusal: -8}
			}
			return zktest.Fault{}
		})
		s := fixture.Connect(t, srv.Config(30*time.Second, srv.A, srv.B))
		moveTo := func(server, from string) {
			srv.Stop(from)
			bubble.Eventually(t, time.Minute, func() bool {
				session, _ := srv.Session(fixture.SessionID(s))
				return session.Server == server && s.IsConnected()
			})
			srv.Restart(from)
		}
		lock := func() (creates, creates2 int) {
			before, before2 := srv.Log.Count(zktest.OpCreate), srv.Log.Count(zktest.OpCreate2)
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
			return srv.Log.Count(zktest.OpCreate) - before, srv.Log.Count(zktest.OpCreate2) - before2
		}
		moveTo(srv.A, srv.B)
		srv.Stop(srv.A, srv.B)
		bubble.Eventually(t, time.Minute, func() bool { return !s.IsConnected() })
		begun := make(chan [2]int, 1)
		go func() { // begins while the latest server is A, and asks B
			creates, creates2 := lock()
			begun <- [2]int{creates, creates2}
		}()
		bubble.Pass(time.Second)
		srv.Restart(srv.B)
		require.Equal(t, [2]int{1, 1}, <-begun)
		srv.Restart(srv.A)
		creates, creates2 := lock()
		require.Equal(t, [2]int{1, 0}, [2]int{creates, creates2}, "B is not asked again")
		moveTo(srv.A, srv.B)
		creates, creates2 = lock()
		require.Equal(t, [2]int{0, 1}, [2]int{creates, creates2}, "A is asked")
	})
}
