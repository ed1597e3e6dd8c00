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
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/budget"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// In each of these tests two things happen to one request or one hold. Each is harmless alone.

// The connection is lost between the answer to the create and the grant. Under the standard policy nothing is granted before the
// client is connected again; under the other one the fresh proof does.
func TestGrantInASuspension(t *testing.T) {
	for _, suspendEnds := range []bool{false, true} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			cfg := srv.Config(time.Minute)
			cfg.SuspendEnds = suspendEnds
			s := fixture.Connect(t, cfg)
			q := fixture.MutexOn(s, "/m")
			q.OnJoined = func(path string) {
				if path != "" {
					srv.Stop(srv.A)
					bubble.Pause(time.Millisecond)
				}
			}
			suspendedAt, granted := time.Now(), bubble.Start(t.Context(), q.Acquire)
			bubble.Pass(5 * time.Second)
			require.Equal(t, connstate.Suspended, s.State())
			if suspendEnds {
				require.Empty(t, granted, "granted while suspended")
			}
			srv.Restart(srv.A)
			got := <-granted
			require.NoError(t, got.Err)
			require.Equal(t, suspendEnds, got.At.Sub(suspendedAt) >= 5*time.Second)
			require.True(t, got.Lease.Stands())
			require.NoError(t, got.Lease.Leave())
		})
	}
}

// Revoked is closed after a loss if the revocation was before it, also for a holder that asks only then, and stays open if the
// revocation was later.
func TestRevokedAndLost(t *testing.T) {
	for _, isRevokedFirst := range []bool{true, false} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s, peer := fixture.TwoClients(t, srv, 6*time.Second)
			e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
			var calls atomic.Int32
			e.OnRevoked(s.Callbacks(), func() { calls.Add(1) })
			fixture.Settle()
			if isRevokedFirst {
				require.NoError(t, queue.Revoke(t.Context(), peer, e.Path()))
				fixture.Settle()
			}
			srv.Partition(fixture.SessionID(s))
			_, cause := bubble.Ended(t, e)
			require.ErrorIs(t, cause, zkutil.ErrSessionLost)
			if !isRevokedFirst {
				require.NoError(t, queue.Revoke(t.Context(), peer, e.Path()))
			}
			srv.HealSessions(fixture.SessionID(s))
			fixture.Settle()
			require.Equal(t, isRevokedFirst, bubble.IsClosed(e.Revoked()))
			require.Equal(t, isRevokedFirst, calls.Load() == 1)
			require.ErrorIs(t, e.Leave(), zkutil.ErrSessionLost)
		})
	}
}

// A revocation during the wait still counts when the znode is read again on another connection, even if another client wrote
// other data since.
func TestRevokedAndReadAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		holder, e, turn := fixture.OneBehind(t, srv)
		fixture.Settle() // the waiter watches its own znode
		own := bubble.Queue(srv, "/m")[1]
		require.NoError(t, queue.Revoke(t.Context(), holder, own))
		bubble.Pass(time.Second)
		srv.Put(own, []byte("me again"))
		bubble.Pass(time.Second)
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.Err)
		require.True(t, bubble.IsClosed(got.Lease.Revoked()))
		require.NoError(t, got.Lease.Leave())
	})
}

// Trust ended in a pause of the process, and the keeper did not notice yet. Any first look at the hold ends it as lost with its
// session.
func TestFirstLookAfterAPause(t *testing.T) {
	for name, look := range map[string]func(s *session.Session, e *session.Entry) error{
		"stands": func(_ *session.Session, e *session.Entry) error {
			if e.Stands() {
				return nil
			}
			return e.Loss()
		},
		"trusted until": func(_ *session.Session, e *session.Entry) error {
			if e.TrustedUntil().After(time.Now()) {
				return nil
			}
			return e.Loss()
		},
		"part": func(_ *session.Session, e *session.Entry) error {
			_, err := e.Part(context.Background(), 0, false, func() session.Leaving { return session.Leaving{} })
			return err
		},
		"deletion": func(s *session.Session, e *session.Entry) error {
			s.Abandon(e.Path())
			return e.Loss()
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := fixture.Connect(t, fixture.NewEnsemble(t).Config(6*time.Second))
				e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
				s.EndTrust()
				require.NoError(t, e.Context().Err(), "nobody has noticed")
				require.ErrorIs(t, look(s, e), zkutil.ErrSessionLost)
				require.ErrorIs(t, context.Cause(e.Context()), zkutil.ErrSessionLost)
			})
		})
	}
}

// The session expires while the answer to a create is on its way. The server deletes the znode with the session, so its bytes
// are free again, and those of the next one count once.
func TestCreateAcrossAnExpiry(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire).Leave())
		require.Zero(t, s.Budget().Usage().Used)
		id, isDone := fixture.SessionID(s), false
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op != zktest.OpGetChildren2 || isDone {
				return zktest.Fault{}
			}
			isDone = true
			srv.Expire(id)
			return zktest.Fault{}
		})
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		require.True(t, isDone)
		require.NotEqual(t, id, fixture.SessionID(s))
		require.Equal(t, budget.Usage{Used: len(e.Path()) + 4, Directories: 1, Nodes: 1}, s.Budget().Usage())
		require.NoError(t, e.Leave())
		require.Equal(t, budget.Usage{}, s.Budget().Usage())
	})
}

// A deletion is refused, and meanwhile the session expires. Refused again in the next session, the deletion is over, because the
// server deleted the znode with its session. It is not repeated, and its bytes are free.
func TestRefusedDeletionAcrossAnExpiry(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		remove := srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		require.ErrorIs(t, e.Leave(), zkutil.ErrNodeNotDeleted)
		srv.Expire(fixture.SessionID(s))
		bubble.Pass(time.Minute)
		deletions := srv.Log.Count(zktest.OpDelete)
		bubble.Pass(10 * time.Minute)
		require.Equal(t, deletions, srv.Log.Count(zktest.OpDelete), "no deletion goes on")
		require.Equal(t, budget.Usage{}, s.Budget().Usage())
		require.Zero(t, s.Tables().Holds)
		remove()
	})
}
