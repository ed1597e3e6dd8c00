package znodes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Of two sessions that use one path, the first owns the znode, and only the owner deletes the znode.
func TestNamedZnodeHasOneOwner(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		owner, other := fixture.Connect(t, srv.Config(6*time.Second)), fixture.Connect(t, srv.Config(6*time.Second))
		srv.DropReply(zktest.OpCreate, 1)
		mayExist, err := znodes.CreateNamed(t.Context(), owner, "/group/one", []byte("first"))
		require.NoError(t, err)
		require.True(t, mayExist)
		mayExist, err = znodes.CreateNamed(t.Context(), other, "/group/one", []byte("second"))
		require.NoError(t, err)
		require.True(t, mayExist)
		<-znodes.RemoveNamed(t.Context(), other, "/group/one")
		n, isOwn, w, err := znodes.ReadNamed(t.Context(), owner, "/group/one")
		require.NoError(t, err)
		defer owner.ReleaseWatch(w)
		require.True(t, isOwn)
		require.Equal(t, "first", string(n.Data))
		_, isOwn, theirs, err := znodes.ReadNamed(t.Context(), other, "/group/one")
		require.NoError(t, err)
		defer other.ReleaseWatch(theirs)
		require.False(t, isOwn)
		<-znodes.RemoveNamed(t.Context(), owner, "/group/one")
		require.True(t, w.IsGone())
		paths, _ := owner.Budget().Nodes()
		require.Empty(t, paths, "the bytes are free again")
	})
}

// A create that can't reach a server leaves nothing that may exist.
func TestNamedCreateThatWasNotSent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		srv.Stop()
		bubble.Pass(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		mayExist, err := znodes.CreateNamed(ctx, s, "/group/one", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, mayExist)
	})
}

// While a client has no session, no znode is its own. A znode without an owner that took the name meanwhile is not deleted in
// place of the client's.
func TestRemoveNamedWithoutASession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		_, err := znodes.CreateNamed(t.Context(), s, "/group/one", []byte("own"))
		require.NoError(t, err)
		restore := srv.Inject(func(r zktest.Request) zktest.Fault {
			return fixture.Cut(r.Op == zktest.OpConnect && r.Session == 0, zktest.NoAnswer) // no new session for a while
		})
		srv.Expire(fixture.SessionID(s))
		bubble.Eventually(t, time.Minute, func() bool { return fixture.SessionID(s) == 0 })
		srv.Put("/group/one", []byte("of somebody else"))
		done := znodes.RemoveNamed(t.Context(), s, "/group/one")
		bubble.Pass(time.Second)
		restore()
		<-done
		data, _, isThere := srv.Get("/group/one")
		require.True(t, isThere)
		require.Equal(t, "of somebody else", string(data))
	})
}
