package znodes_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// stat returns the data and the version of a znode.
func stat(srv *fixture.Ensemble, path string) (data string, version int32) {
	content, s, _ := srv.Get(path)
	return string(content), s.Version
}

// A write to a znode that is missing creates it, and the parents, and sends nothing else.
func TestWriteCreatesWhatIsMissing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		log := srv.Observe()
		require.NoError(t, znodes.Write(t.Context(), s, "/a/b", []byte("first")))
		require.Equal(t, []zktest.Op{zktest.OpSetData, zktest.OpCreate, zktest.OpCreateContainer, zktest.OpCreate}, bubble.Operations(log))
		data, version := stat(srv, "/a/b")
		require.Equal(t, "first", data)
		require.Zero(t, version)

		log = srv.Observe()
		require.NoError(t, znodes.Write(t.Context(), s, "/a/b", []byte("second")))
		require.NoError(t, znodes.Create(t.Context(), s, "/a/b", []byte("third")))
		require.Equal(t, []zktest.Op{zktest.OpSetData, zktest.OpCreate}, bubble.Operations(log))
		data, version = stat(srv, "/a/b")
		require.Equal(t, "second", data)
		require.EqualValues(t, 1, version)

		require.ErrorIs(t, znodes.WriteIf(t.Context(), s, "/a/b", []byte("x"), 0), zk.ErrBadVersion)
		require.NoError(t, znodes.WriteIf(t.Context(), s, "/a/b", []byte("third"), 1))
		require.ErrorIs(t, znodes.WriteIf(t.Context(), s, "/a/c", nil, 0), zk.ErrNoNode)
		n, err := znodes.Read(t.Context(), s, "/a/b")
		require.NoError(t, err)
		require.Equal(t, "third", string(n.Data))
		require.EqualValues(t, 2, n.Stat.Version)

		srv.Once(zktest.OpSetData, zktest.Fault{Refusal: zktest.RefuseNoNode}) // another client created it meanwhile
		require.NoError(t, znodes.Write(t.Context(), s, "/a/b", []byte("fourth")))
		data, _ = stat(srv, "/a/b")
		require.Equal(t, "fourth", data)
	})
}

// The undo of an uncertain write changes the version of a znode that the write may still reach, and data that it has written. It leaves
// alone what another client wrote.
func TestUndo(t *testing.T) {
	const path = "/a"
	for name, test := range map[string]struct {
		meanwhile func(srv *fixture.Ensemble)
		want      string
		version   int32
	}{
		"still under way": {func(*fixture.Ensemble) {}, "before", 1},
		"executed":        {func(srv *fixture.Ensemble) { srv.Put(path, []byte("own")) }, "before", 2},
		"overwritten":     {func(srv *fixture.Ensemble) { srv.Put(path, []byte("other")) }, "other", 1},
		"overwritten later": {func(srv *fixture.Ensemble) {
			srv.Put(path, []byte("own"))
			srv.Put(path, []byte("other"))
		}, "other", 2},
		"created again": {func(srv *fixture.Ensemble) {
			srv.Delete(path)
			srv.Put(path, []byte("other"))
		}, "other", 0},
		"created again, and executed": {func(srv *fixture.Ensemble) {
			srv.Delete(path)
			srv.Put(path, []byte("own"))
		}, "before", 1},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				srv.Put(path, []byte("before"))
				s := fixture.Connect(t, srv.Config(6*time.Second))
				_, before, _ := srv.Get(path)
				test.meanwhile(srv)
				require.NoError(t, undo(t, s, path, before.Czxid))
				data, version := stat(srv, path)
				require.Equal(t, test.want, data)
				require.Equal(t, test.version, version)
			})
		})
	}
}

// A write for which no znode was found may still arrive at one that was created since.
func TestUndoOfAWriteToAMissingZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		srv.Put("/a", nil)
		require.NoError(t, undo(t, s, "/a", 0))
		_, version := stat(srv, "/a")
		require.EqualValues(t, 1, version)
	})
}

// undo undoes a write of version 0, and returns the result.
func undo(t *testing.T, s *session.Session, path string, czxid int64) error {
	t.Helper()
	over := make(chan error, 2)
	znodes.UndoLater(t.Context(), s, znodes.Undo{
		Write: znodes.Guarded{Path: path, Data: []byte("own")}, Czxid: czxid, Before: []byte("before"),
		IsOwn:     func(data []byte) bool { return string(data) == "own" },
		OnRefused: func(err error) { t.Errorf("refused: %v", err) },
		OnOver:    func(err error) { over <- err },
	})
	bubble.Pass(time.Minute)
	require.Len(t, over, 1, "it is called once")
	return <-over
}

// An undo lasts until it is certain. Each series of equal refusals is reported once. A znode that is deleted needs no undo, and none begins in
// a closed session.
func TestUndoThatFails(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		srv.Put("/a", []byte("own"))
		s := fixture.Connect(t, srv.Config(6*time.Second))
		require.NoError(t, undo(t, s, "/missing", 0))

		var isUnknown atomic.Bool // the refusal
		allow := srv.Inject(func(r zktest.Request) zktest.Fault {
			switch {
			case r.Op != zktest.OpSetData:
				return zktest.Fault{}
			case isUnknown.Load():
				return zktest.Fault{Refusal: zktest.RefuseUnimplemented}
			default:
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
		})
		refusals := make(chan error, 10)
		over := make(chan error, 1)
		znodes.UndoLater(t.Context(), s, znodes.Undo{
			Write: znodes.Guarded{Path: "/a", Data: []byte("own"), Version: 7}, Before: []byte("before"),
			IsOwn:     func(data []byte) bool { return string(data) == "own" },
			OnRefused: func(err error) { refusals <- err },
			OnOver:    func(err error) { over <- err },
		})
		bubble.Pass(5 * time.Minute)
		require.Len(t, refusals, 1)
		require.ErrorIs(t, <-refusals, zk.ErrNoAuth)
		isUnknown.Store(true)
		bubble.Pass(5 * time.Minute)
		require.Len(t, refusals, 1)
		require.ErrorContains(t, <-refusals, "setData: the server does not know the operation")
		isUnknown.Store(false)
		bubble.Pass(5 * time.Minute)
		require.Len(t, refusals, 1)
		require.Empty(t, over)
		allow()
		bubble.Pass(time.Minute)
		require.NoError(t, <-over)
		data, _ := stat(srv, "/a")
		require.Equal(t, "before", data)

		require.NoError(t, s.Close())
		require.ErrorIs(t, undo(t, s, "/a", 0), zkutil.ErrClosed)
	})
}
