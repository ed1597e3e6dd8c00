package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// claimOf is a claim of a contender that looked, and would be granted now.
func claimOf(t *testing.T, s *session.Session) session.Claim {
	t.Helper()
	path, err := s.CreateProtected(t.Context(), "/m", "lock-", nil)
	require.NoError(t, err)
	before := s.Snapshot()
	reading, err := s.StartReadOwn(t.Context(), path)
	require.NoError(t, err)
	n, own, err := reading.Wait(t.Context())
	require.NoError(t, err)
	return session.Claim{Path: path, Token: n.Stat.Czxid, Owner: n.Stat.EphemeralOwner, Own: own, Epoch: before.Epoch}
}

// Close is called between the last look and the grant.
func TestNoGrantOnAClosedSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		s.Abort()
		_, err := s.Grant(t.Context(), claim)
		require.ErrorIs(t, err, zkutil.ErrClosed)
		require.Zero(t, s.Tables().Holds)
		require.NoError(t, s.Close())
	})
}

// The user closes zk.Conn between the last look and the grant. The server did not execute the request yet.
func TestNoGrantOnceTheUserHasClosedTheConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		srv.Once(zktest.OpClose, zktest.Fault{Lost: zktest.NoAnswer})
		done := make(chan struct{})
		go func() { // ends after a second, without an answer; joined below
			s.Conn().Close()
			close(done)
		}()
		synctest.Wait()
		require.Len(t, srv.Children("/m"), 1)
		_, err := s.Grant(t.Context(), claim)
		holds := s.Tables().Holds
		<-done
		require.ErrorIs(t, err, zkutil.ErrClosed)
		require.Zero(t, holds)
		require.NoError(t, s.Close())
	})
}

// An event between the last look and the grant reports that the znode is deleted.
func TestNoGrantOfAGoneZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		srv.Delete(claim.Path)
		synctest.Wait()
		_, err := s.Grant(t.Context(), claim)
		require.ErrorIs(t, err, zkutil.ErrContenderLost)
		require.ErrorIs(t, err, zkutil.ErrNodeDeleted)
		require.Zero(t, s.Tables().Holds)
	})
}

// An event between the last look and the grant reports that the znode changed, for example that a peer asks for the lease.
func TestNoGrantOfAChangedZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		srv.Put(claim.Path, []byte(session.Revocation))
		synctest.Wait()
		_, err := s.Grant(t.Context(), claim)
		require.ErrorIs(t, err, zkutil.ErrStale)
		require.Zero(t, s.Tables().Holds)
	})
}

// The znode belongs to a session before the present one, whose connection is still that of the claim.
func TestNoGrantToAnotherSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		claim.Owner++
		_, err := s.Grant(t.Context(), claim)
		require.ErrorIs(t, err, zkutil.ErrContenderLost)
		require.ErrorIs(t, err, zkutil.ErrSessionLost)
		require.Zero(t, s.Tables().Holds)
	})
}

// The context of the caller ends between the last look and the grant.
func TestNoGrantAfterTheEndOfTheContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Grant(ctx, claim)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, s.Tables().Holds)
	})
}

// The znode is deleted before its proof. The contender joins again, and its caller sees no error of the server.
func TestProofOfAGoneZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		claim := claimOf(t, s)
		fixture.Untold(srv, func() { srv.Delete(claim.Path) })
		err := s.Prove(t.Context(), claim.Path)
		require.ErrorIs(t, err, zkutil.ErrContenderLost)
		require.ErrorIs(t, err, zkutil.ErrNodeDeleted)
	})
}

// The client reconnects before it uses the answer to the listing. The answer may be outdated, so it is no ground for a
// grant.
func TestReconnectDuringALook(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		q := fixture.MutexOn(s, "/m")
		looks := 0
		q.Rule = func(_ []queue.Contender, own int) int {
			if looks++; looks == 1 {
				srv.Disconnect()
				bubble.Pause(2 * time.Second)
				require.Equal(t, connstate.Connected, s.State())
				require.Len(t, srv.Dialled(), 2)
			}
			return own - 1
		}
		e := bubble.Acquire(t, q.Acquire)
		require.Equal(t, 2, looks)
		require.NoError(t, e.Leave())
	})
}
