package session_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A guarded write needs its guard, and the version, on both carriers. After a lost answer the next attempt tells that the
// outcome was uncertain.
func TestGuardedWrite(t *testing.T) {
	onBothCarriers(t, func(t *testing.T, srv *fixture.Ensemble, s *session.Session) {
		t.Helper()
		srv.Put("/guard", nil)
		write := session.Guarded{Guard: "/guard", Path: "/a", Data: []byte("first")}
		isUncertain, err := s.Persistent().WriteGuarded(t.Context(), write)
		require.NoError(t, err)
		require.False(t, isUncertain)
		isUncertain, err = s.Persistent().WriteGuarded(t.Context(), write)
		require.ErrorIs(t, err, zk.ErrBadVersion)
		require.False(t, isUncertain)

		write.Version, write.Data = 1, []byte("second")
		srv.DropReply(zktest.OpMulti, 1)
		isUncertain, err = s.Persistent().WriteGuarded(t.Context(), write)
		require.ErrorIs(t, err, zk.ErrBadVersion, "it has been executed")
		require.True(t, isUncertain)
		n, err := s.Persistent().ReadOnce(t.Context(), "/a")
		require.NoError(t, err)
		require.Equal(t, "second", string(n.Data))
		require.EqualValues(t, 2, n.Stat.Version)

		write.Version, write.Path = 0, "/missing"
		_, err = s.Persistent().WriteGuarded(t.Context(), write)
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.NotErrorIs(t, err, zkutil.ErrNodeDeleted)
		srv.Delete("/guard")
		write.Version, write.Path = 2, "/a"
		isUncertain, err = s.Persistent().WriteGuarded(t.Context(), write)
		require.ErrorIs(t, err, zkutil.ErrNodeDeleted)
		require.False(t, isUncertain)
	})
}
