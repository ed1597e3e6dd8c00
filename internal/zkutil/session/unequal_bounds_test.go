package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// unequalBounds are two servers, one of which grants a session 30 s and the other one less. The session was on both,
// and is on the one that grants 30 s.
type unequalBounds struct {
	long, short string // addresses of the servers
}

// grantUnequalBounds prepares the servers of a session that was granted 30 s.
func grantUnequalBounds(t *testing.T, srv *fixture.Ensemble, s *session.Session, least time.Duration) unequalBounds {
	t.Helper()
	long := s.Conn().Server()
	b := unequalBounds{long: long, short: map[string]string{srv.A: srv.B, srv.B: srv.A}[long]}
	srv.SetSessionTimeouts(30*time.Second, time.Minute, b.long)
	srv.SetSessionTimeouts(time.Second, least, b.short)
	for _, server := range []string{b.long, b.short} {
		srv.Stop(server)
		bubble.Eventually(t, 10*time.Second, func() bool { return s.State() == connstate.Connected && s.Conn().Server() != server })
		srv.Restart(server)
		if server == b.long {
			require.Equal(t, least, s.Timeout())
		}
	}
	require.Equal(t, 30*time.Second, s.Timeout())
	return b
}

// loseAnswerOfLowerBound has a holder lose the answer of a server that grants it least, and
// requires that its lease ends before the next one begins.
func loseAnswerOfLowerBound(t *testing.T, srv *fixture.Ensemble, least time.Duration) {
	t.Helper()
	s, next := fixture.Connect(t, srv.Config(30*time.Second, srv.A, srv.B)), fixture.Connect(t, srv.Config(30*time.Second, srv.A, srv.B))
	bounds := grantUnequalBounds(t, srv, s, least)
	id := fixture.SessionID(s)
	e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
	turn := bubble.Start(t.Context(), fixture.MutexOn(next, "/m").Acquire)
	bubble.Pass(time.Second)
	answer := srv.Delay(zktest.OpConnect, time.Hour, id) // renewed, and no answer
	srv.Stop(bounds.long)
	bubble.Pass(100 * time.Millisecond)
	srv.Partition(id)
	at, cause := bubble.Ended(t, e)
	require.ErrorIs(t, cause, zkutil.ErrSessionLost)
	got := <-turn
	require.NoError(t, got.Err)
	require.Less(t, at, got.At)
	require.NoError(t, got.Lease.Leave())
	answer()
	srv.Restart(bounds.long)
	srv.Heal()
}
