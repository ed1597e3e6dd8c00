package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// While a client has no session, no znode is its own. A znode without an owner that has taken the name meanwhile is not deleted in place of
// the client's.
func TestRemoveNamedWithoutASession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		require.NoError(t, s.CreateNamed(t.Context(), "/group/one", []byte("own")))
		restore := srv.Inject(func(r zktest.Request) zktest.Fault {
			return fixture.Cut(r.Op == zktest.OpConnect && r.Session == 0, zktest.NoAnswer) // no new session for a while
		})
		srv.Expire(fixture.SessionID(s))
		fixture.Eventually(t, time.Minute, func() bool { return fixture.SessionID(s) == 0 })
		srv.Put("/group/one", []byte("of somebody else"))
		done := s.RemoveNamed(t.Context(), "/group/one")
		fixture.Pass(time.Second)
		restore()
		<-done
		data, _, isThere := srv.Get("/group/one")
		require.True(t, isThere)
		require.Equal(t, "of somebody else", string(data))
	})
}

// askingContext is a context of the user whose values come from the session.
type askingContext struct {
	context.Context //nolint:containedctx // a context

	s *session.Session
}

func (c askingContext) Value(key any) any {
	_ = c.s.State()
	return c.Context.Value(key)
}

// The user's contexts are asked for values under no lock.
func TestValuesOfAContextBeforeTheCredentials(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		cfg.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("user:password")}}
		s, err := session.Open(t.Context(), cfg, time.Minute)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		e, err := fixture.MutexOn(s, "/m").Acquire(askingContext{t.Context(), s})
		require.NoError(t, err)
		require.NoError(t, e.Leave())
	})
}

// A request that was made before the connection, and has waited at the gate, goes by what is known of the server that it is sent to.
func TestOptionalOperationsOfTheServerBehindTheGate(t *testing.T) {
	t.Run("that resumes no session", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t, zktest.WithDialect(zktest.ClickHouseKeeper))
			srv.Stop()
			s, err := session.Open(t.Context(), srv.Config(30*time.Second), time.Minute)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
			fixture.Pass(time.Second)
			srv.Restart()
			got := <-turn
			require.NoError(t, got.Err)
			require.NoError(t, got.Entry.Leave())
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
			require.NoError(t, fixture.Acquire(t, fixture.MutexOn(s, "/m")).Leave()) // the client knows what B lacks
			srv.Restart(srv.A)
			srv.Stop(srv.B)
			fixture.Pass(time.Minute)
			require.NoError(t, fixture.Acquire(t, fixture.MutexOn(s, "/m")).Leave())
			srv.Stop(srv.A)
			fixture.Pass(time.Second)
			turn := fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
			fixture.Pass(time.Second)
			start := time.Now()
			srv.Restart(srv.B)
			got := <-turn
			require.NoError(t, got.Err)
			require.NoError(t, got.Entry.Leave())
			require.Empty(t, fixture.Times(srv.Log.Requests(zktest.OpCreate2), start))
		})
	})
}

// A grant that shares the proof of another waits for the proof, not for the list that the other one has asked for behind it.
func TestGrantDoesNotWaitForTheListOfAnother(t *testing.T) {
	const timeout, commit, listing = 6 * time.Second, 10 * time.Millisecond, 500 * time.Millisecond
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, s := fixture.TwoClients(t, srv, timeout)
		listed := fixture.MutexOn(s, "/listed")
		listed.AlwaysList = true
		slow, quick := fixture.Acquire(t, fixture.MutexOn(holder, "/listed")), fixture.Acquire(t, fixture.MutexOn(holder, "/m"))
		slowTurn, quickTurn := fixture.AcquireLater(t.Context(), listed), fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/m"))
		fixture.Pass(5 * timeout)
		id := fixture.SessionID(s)
		srv.Delay(zktest.OpGetChildren2, listing, id)
		defer srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op != zktest.OpMulti || r.Session != id {
				return zktest.Fault{}
			}
			srv.Delete(quick.Path()) // while the proof is under way
			return zktest.Fault{Delay: commit}
		})()
		start := time.Now()
		srv.Delete(slow.Path())
		got := <-quickTurn
		require.NoError(t, got.Err)
		require.Equal(t, commit, got.At.Sub(start))
		got = <-slowTurn
		require.NoError(t, got.Err)
		require.Equal(t, commit+listing, got.At.Sub(start))
		require.Len(t, requestsOf(srv, s, start, zktest.OpMulti), 1)
		_, _ = slow.Leave(), quick.Leave()
	})
}

// A proof that its sender does not wait for any more is under way all the same: others share it.
func TestGrantSharesTheProofOfOneWhoHasGivenUp(t *testing.T) {
	const timeout, commit = 6 * time.Second, 100 * time.Millisecond
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, s := fixture.TwoClients(t, srv, timeout)
		first, second := fixture.Acquire(t, fixture.MutexOn(holder, "/a")), fixture.Acquire(t, fixture.MutexOn(holder, "/b"))
		ctx, giveUp := context.WithCancel(t.Context())
		firstTurn, secondTurn := fixture.AcquireLater(ctx, fixture.MutexOn(s, "/a")), fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/b"))
		fixture.Pass(5 * timeout)
		defer srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op != zktest.OpMulti || r.Session != fixture.SessionID(s) {
				return zktest.Fault{}
			}
			giveUp()
			srv.Delete(second.Path())
			return zktest.Fault{Delay: commit}
		})()
		start := time.Now()
		srv.Delete(first.Path())
		require.ErrorIs(t, (<-firstTurn).Err, context.Canceled)
		got := <-secondTurn
		require.NoError(t, got.Err)
		require.Equal(t, commit, got.At.Sub(start))
		require.Len(t, requestsOf(srv, s, start, zktest.OpMulti), 1)
		_, _ = first.Leave(), second.Leave()
	})
}

// On an adopted connection, an answer that is lost leaves its request unanswered for as long as the connection lives. Those who share such a
// proof go on when something else proves the session: the delete of the sender who gives up, or the create of another lock.
func TestGrantSharesAProofWithoutAnAnswer(t *testing.T) {
	const timeout = 6 * time.Second
	for name, givesUp := range map[string]bool{"whose sender gives up": true, "whose sender waits": false} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				s, _ := fixture.Adopt(t, srv, timeout)
				holder := fixture.Connect(t, srv.Config(timeout, srv.B))
				first, second := fixture.Acquire(t, fixture.MutexOn(holder, "/a")), fixture.Acquire(t, fixture.MutexOn(holder, "/b"))
				ctx, giveUp := context.WithCancel(t.Context())
				firstTurn, secondTurn := fixture.AcquireLater(ctx, fixture.MutexOn(s, "/a")), fixture.AcquireLater(t.Context(), fixture.MutexOn(s, "/b"))
				fixture.Pass(5 * timeout)
				id, isLost := fixture.SessionID(s), false
				defer srv.OnRequest(func(r zktest.Request) zktest.Fault {
					if r.Op != zktest.OpMulti || r.Session != id || isLost {
						return zktest.Fault{}
					}
					isLost = true
					srv.Delete(second.Path())
					return zktest.Fault{Lost: zktest.AnswerLost}
				})()
				srv.Delete(first.Path())
				fixture.Pass(100 * time.Millisecond)
				if givesUp {
					giveUp()
					require.ErrorIs(t, (<-firstTurn).Err, context.Canceled)
				} else {
					require.NoError(t, fixture.Acquire(t, fixture.MutexOn(s, "/c")).Leave())
				}
				fixture.Pass(100 * time.Millisecond)
				require.Len(t, secondTurn, 1)
				got := <-secondTurn
				require.NoError(t, got.Err)
				require.NoError(t, got.Entry.Leave())
				giveUp()
				srv.Disconnect(id) // zk.Conn ends the request
				_, _ = first.Leave(), second.Leave()
			})
		})
	}
}
