package znodes_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A guarded write needs its guard, and the version. After a lost answer, the next attempt reports that the outcome
// was uncertain.
func TestGuardedWrite(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		srv.Put("/a", []byte("data"))
		s := fixture.Connect(t, srv.Config(6*time.Second))
		srv.Put("/guard", nil)
		write := znodes.Guarded{Guard: "/guard", Path: "/a", Data: []byte("first")}
		isUncertain, err := znodes.WriteGuarded(t.Context(), s, write)
		require.NoError(t, err)
		require.False(t, isUncertain)
		isUncertain, err = znodes.WriteGuarded(t.Context(), s, write)
		require.ErrorIs(t, err, zk.ErrBadVersion)
		require.False(t, isUncertain)

		write.Version, write.Data = 1, []byte("second")
		srv.DropReply(zktest.OpMulti, 1)
		isUncertain, err = znodes.WriteGuarded(t.Context(), s, write)
		require.ErrorIs(t, err, zk.ErrBadVersion, "it has been executed")
		require.True(t, isUncertain)
		n, err := znodes.Read(t.Context(), s, "/a")
		require.NoError(t, err)
		require.Equal(t, "second", string(n.Data))
		require.EqualValues(t, 2, n.Stat.Version)

		write.Version, write.Path = 0, "/missing"
		_, err = znodes.WriteGuarded(t.Context(), s, write)
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.NotErrorIs(t, err, zkutil.ErrNodeDeleted)
		srv.Put("/b", nil)
		_, err = znodes.WriteGuarded(t.Context(), s, znodes.Guarded{Guard: "/guard", Path: "/b", Deletes: true, Version: 1})
		require.ErrorIs(t, err, zk.ErrBadVersion)
		srv.DropReply(zktest.OpMulti, 1)
		isUncertain, err = znodes.WriteGuarded(t.Context(), s, znodes.Guarded{Guard: "/guard", Path: "/b", Deletes: true})
		require.ErrorIs(t, err, zk.ErrNoNode, "it has been executed")
		require.True(t, isUncertain)
		require.NotContains(t, srv.Children("/"), "b")
		srv.Delete("/guard")
		write.Version, write.Path = 2, "/a"
		isUncertain, err = znodes.WriteGuarded(t.Context(), s, write)
		require.ErrorIs(t, err, zkutil.ErrNodeDeleted)
		require.False(t, isUncertain)
	})
}
