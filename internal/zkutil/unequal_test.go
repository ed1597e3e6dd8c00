package zkutil

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// unequalBounds are two servers, one of which grants a session 30 s and the other one less. The
// session has been on both, and is on the one that grants 30 s.
type unequalBounds struct {
	long, short string // addresses of the servers
}

// grantUnequalBounds prepares the servers of a session that was granted 30 s.
func grantUnequalBounds(t *testing.T, srv *ensemble, s *Session, least time.Duration) unequalBounds {
	t.Helper()
	long := s.Conn().Server()
	b := unequalBounds{long: long, short: map[string]string{srv.a: srv.b, srv.b: srv.a}[long]}
	srv.SetSessionTimeouts(30*time.Second, time.Minute, b.long)
	srv.SetSessionTimeouts(time.Second, least, b.short)
	for _, server := range []string{b.long, b.short} {
		srv.Stop(server)
		eventually(t, 10*time.Second, func() bool { return s.State() == Connected && s.Conn().Server() != server })
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
func loseAnswerOfLowerBound(t *testing.T, srv *ensemble, least time.Duration) {
	t.Helper()
	s, next := connect(t, srv.config(30*time.Second, srv.a, srv.b)), connect(t, srv.config(30*time.Second, srv.a, srv.b))
	bounds := grantUnequalBounds(t, srv, s, least)
	id := sessionID(s)
	e := acquire(t, mutexOn(s, "/m"))
	turn := acquireLater(t.Context(), mutexOn(next, "/m"))
	pass(time.Second)
	answer := srv.Delay(zktest.OpConnect, time.Hour, id) // renewed, and no answer
	srv.Stop(bounds.long)
	pass(100 * time.Millisecond)
	srv.Partition(id)
	at, cause := ended(t, e)
	require.ErrorIs(t, cause, ErrSessionLost)
	got := <-turn
	require.NoError(t, got.err)
	require.Less(t, at, got.at)
	require.NoError(t, got.entry.Leave())
	answer()
	srv.Restart(bounds.long)
	srv.Heal()
}
